"""What every class-by-class method of group learning is: arrays in, labels and a small state out.

A third party writes a subclass of :class:`GroupMethod` and names it under the entry point
``rowsieve.group_methods``; gathering a class's rows, numbering groups across classes, storing labels and
placing new rows are done for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from operators.base import OperatorParams

NOISE = -1

Array: TypeAlias = npt.NDArray[Any]
Labels: TypeAlias = npt.NDArray[np.int32]
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
    n_groups : how many numbers a label may take; more than appear where a group is empty.
    state : named arrays from which ``predict`` places new rows. Stored without pickle.
    scores : figures to record, such as a silhouette.
    """

    labels: Labels
    n_groups: int
    state: State
    scores: Mapping[str, float] = field(default_factory=dict)


class GroupMethod(ABC, Generic[P]):
    """A way of splitting one class into groups.

    ``Params`` has a field ``method`` with the method's name as its only value. Modules of methods are
    imported when planning: they import scikit-learn and the like inside functions.
    """

    version: ClassVar[int] = 1
    """Raise it whenever the same parameters would give other groups."""
    Params: ClassVar[type[OperatorParams]]

    def __init__(self, params: P) -> None:
        self.params = params

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Sidecar columns that are looked at, such as ``gradient``, ``x`` or ``loss``."""

    @abstractmethod
    def fit(self, columns: Columns, seed: int) -> GroupResult:
        """Groups of the rows of one class; there is at least one row."""

    @abstractmethod
    def predict(self, state: State, columns: Columns) -> Labels:
        """(n,) int32: the group of each new row of the class, from what ``fit`` left."""
