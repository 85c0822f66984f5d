"""The interface of class-by-class methods of group inference: arrays in, labels and a small state out.

Another package adds a method by a subclass of :class:`GroupMethod` under the entry-point group
``rowsieve.group_methods``. Gathering the rows of a class, numbering groups across classes, storing labels
and assigning new rows are done by :mod:`operators.groups.adaptor`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy.typing as npt

from operators.arrays import Labels
from operators.base import OperatorParams

Array: TypeAlias = npt.NDArray[Any]
Columns: TypeAlias = Mapping[str, Array]
"""Sidecar columns of n rows: vectors as (n, d) float32, numbers as (n,)."""
State: TypeAlias = Mapping[str, Array]
P = TypeVar("P", bound=OperatorParams)


@dataclass(frozen=True, eq=False)
class GroupResult:
    """Groups of one class.

    Attributes
    ----------
    labels : (n,) int32 from 0 within the class; -1 is noise: in no group.
    n_groups : number of values that a label may have; groups may be empty.
    state : named arrays from which ``predict`` places new rows. Stored without pickle.
    scores : figures to record, such as a silhouette.
    centres : (n_groups, q) a point for each group, by which groups with few rows are merged; without, they
        join the largest group of their class.
    """

    labels: Labels
    n_groups: int
    state: State
    scores: Mapping[str, float] = field(default_factory=dict)
    centres: Array | None = None


class GroupMethod(ABC, Generic[P]):
    """Method that splits one class into groups.

    ``Params`` has a field ``method`` with the method's name as its only value. If it also has ``min_rows``
    and ``min_share``, groups with fewer rows are merged, see :mod:`operators.groups.small_groups`. Modules of
    methods are imported while planning, so they import scikit-learn and similar libraries inside functions.
    """

    version: ClassVar[int] = 1
    """Raise it whenever the same parameters would give other groups."""
    Params: ClassVar[type[OperatorParams]]

    def __init__(self, params: P) -> None:
        self.params = params

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Return the sidecar columns that the method reads, such as ``gradient``, ``x`` or ``loss``."""

    @abstractmethod
    def fit(self, columns: Columns, seed: int) -> GroupResult:
        """Find the groups of the rows of one class; there is at least one row."""

    @abstractmethod
    def predict(self, state: State, columns: Columns) -> Labels:
        """Return the group (n,), int32, of each new row of the class, from the state that ``fit`` left."""
