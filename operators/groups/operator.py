"""The operator ``groups`` as recipes name it: it chooses the class that carries a method out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operators.base import Operator, OperatorParams
from operators.groups.base import GroupsBase
from operators.groups.methods import known_methods, method_class


class Groups(GroupsBase[OperatorParams]):
    """Adds ``group`` (-1: in none) and ``group_outlier``, by one of several methods."""

    @classmethod
    def variant(cls, params: Mapping[str, Any]) -> type[Operator[Any]]:
        """The class of ``method``, by default ``grasp``. Raises OperatorError for an unknown one."""
        return method_class(str(params.get("method", "grasp")))

    @classmethod
    def variants(cls) -> dict[str, type[Operator[Any]]]:
        """All methods that load, by name."""
        return known_methods()
