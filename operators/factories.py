"""Checks the ``package.module:factory`` that a recipe names, because importing a module runs it."""

from __future__ import annotations

import os

from operators.base import OperatorError

VARIABLE = "ROWSIEVE_FACTORIES"


def check_allowed(path: str, where: str = "model") -> None:
    """Raise OperatorError unless the environment allows the module of ``package.module:factory``.

    ``ROWSIEVE_FACTORIES`` lists modules, separated by commas; each allows itself and its submodules. The
    person who starts the run sets it on every node; a recipe or a stored model cannot.
    """
    module = path.partition(":")[0]
    allowed = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    if any(module == name or module.startswith(f"{name}.") for name in allowed):
        return
    known = f"allowed are: {', '.join(allowed)}" if allowed else "none is allowed so far"
    raise OperatorError(
        f"{where} '{path}' would import the module '{module}', and {known}. If you trust it, set "
        f"{VARIABLE}={','.join([*allowed, module])} in the environment, on every node."
    )
