"""Ways of learning groups, behind one operator: ``groups: {method: ...}``.

GRASP, the default, is in :mod:`operators.grasp`. Importing this package imports no method.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operators.groups.kernel import GroupMethod, GroupResult
    from operators.groups.placing import assign

__all__ = ["GroupMethod", "GroupResult", "assign"]

_HOMES = {"GroupMethod": "kernel", "GroupResult": "kernel", "assign": "placing"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
