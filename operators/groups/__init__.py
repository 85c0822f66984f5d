"""Methods of group inference, which one operator runs: ``groups: {method: ...}``.

GRASP, the default, is in :mod:`operators.grasp`. Importing this package imports no method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.groups.kernel import GroupMethod, GroupResult

__all__ = ["GroupMethod", "GroupResult"]

_DEFINED_IN = {"GroupMethod": "kernel", "GroupResult": "kernel"}

__getattr__ = lazy(__name__, _DEFINED_IN)
