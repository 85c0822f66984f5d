"""Methods of group inference, which one operator runs: ``groups: {method: ...}``.

GRASP, the default, is in :mod:`operators.grasp`. Importing this package imports no method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.groups.kernel import GroupMethod, GroupResult
    from operators.groups.operator import assign

__all__ = ["GroupMethod", "GroupResult", "assign"]

_DEFINED_IN = {"GroupMethod": "kernel", "GroupResult": "kernel", "assign": "operator"}

__getattr__ = lazy(__name__, _DEFINED_IN)
