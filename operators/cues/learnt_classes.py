"""Classes that are learnt: those in which shortcuts are searched for, and what is found there as of all.

The search numbers these classes 0 .. K - 1: its measurements depend on the number of classes, and on models
that balance them, in which a class of a few rows, or of none, must not count. A row of such a class has the
weight of its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from operators.arrays import Float64, Floats, Integers, Mask
from operators.class_shares import counted_classes
from operators.cues.limits import Limits
from operators.cues.models.twins import Twins
from operators.cues.sides.sides import Sides
from operators.cues.state import CueState, Search

SMALL_PART = 0.1
"""Part of the mean number of rows of a class below which nothing is searched for in a class. Balanced models
take many rows of the others for a class of .4 % that they hardly tell, so that their mistakes say nothing of
a shortcut (twenty-first study)."""
MAX_CLASSES = 100
"""Classes above which nothing is searched for: no measurement has been tried there."""
NEVER = np.finfo(np.float32).min
"""Offset of a class to which models give probability 0."""


def learnt_classes(counts: Integers) -> Mask:
    """Return in which classes shortcuts are searched for, shape (C,): two at least, if two have rows.

    ``counts`` are the rows of each class, shape (C,).
    """
    counted = counted_classes(counts)
    large = counted & (counts >= SMALL_PART * counts.sum() / max(int(np.count_nonzero(counts)), 1))
    return np.asarray(large if large.sum() > 1 else counted)


def are_too_many(counts: Integers) -> bool:
    """Return whether there are more classes to search than ``MAX_CLASSES``; ``counts`` are those of rows."""
    return bool(learnt_classes(counts).sum() > MAX_CLASSES)


def weighed_classes(columns: Sequence[Sides], learnt: Mask) -> Mask:
    """Return in which classes rows are told apart where some columns are balanced, shape (C,).

    These are the learnt ones, shape (C,), and those in which the sides of a column weigh differently.
    """
    divided = [np.ptp(one.factor, axis=1) > 0 for one in columns]
    return np.asarray(np.any([learnt, *divided], axis=0))


@dataclass(frozen=True)
class LearntClasses:
    """The classes in which shortcuts are searched for, among all classes of a table.

    Attributes
    ----------
    labels
        Their labels, ascending, shape (K,).
    n_classes
        C.

    """

    labels: Integers
    n_classes: int

    def number(self, y: Integers) -> Integers:
        """Return the number of each label, which has to be one of ``labels``, shape (n,)."""
        return np.asarray(np.searchsorted(self.labels, y))

    def as_all_classes(self, found: Search, class_factor: Floats) -> Search:
        """Return the findings on the K classes as those of all.

        ``class_factor`` is the weight of the rows of each class, shape (C,).
        """
        if len(self.labels) == self.n_classes:
            return found
        together, class_set = (
            None if one is None else self._state(one, class_factor)
            for one in (found.together, found.class_set)
        )
        column = None if found.column is None else self._sides(found.column)
        return Search(self._state(found.state, class_factor), column, together, class_set)

    def _state(self, state: CueState, class_factor: Floats) -> CueState:
        return replace(
            state,
            class_factor=class_factor,
            twins=None if state.twins is None else self._twins(state.twins),
            mean_error=self._spread(state.mean_error, 0.5),
            slices=replace(state.slices, above=self._spread(state.slices.above, 0.0)),
            limits=Limits.of_class_balance(self.n_classes, state.limits.cap),
            effective=np.ones(self.n_classes),
            class_column=None if state.class_column is None else self._sides(state.class_column),
            further=tuple(self._sides(one) for one in state.further),
        )

    def _twins(self, twins: Twins) -> Twins:
        return replace(twins, before=self._models(twins.before), after=self._models(twins.after))

    def _models(self, models: Floats) -> Floats:
        """Return models (splits, 2, d + 1, K) with a column for each of C classes."""
        spread = self._spread(models, 0.0).astype(models.dtype)
        spread[..., -1, np.setdiff1d(np.arange(self.n_classes), self.labels)] = NEVER
        return np.asarray(spread)

    def _sides(self, sides: Sides) -> Sides:
        """Return the sides with the rows of C classes; where they stand for classes, for these labels."""
        level_side, columns = sides.level_side, np.arange(sides.factor.shape[1])
        if len(columns) == len(self.labels) + 1:
            columns = np.append(self.labels, self.n_classes)
            level_side = columns[level_side]
        factor = np.ones((self.n_classes, columns[-1] + 1))
        factor[np.ix_(self.labels, columns)] = sides.factor
        rare = None if sides.rare is None else np.zeros(factor.shape, np.bool_)
        if rare is not None:
            rare[np.ix_(self.labels, columns)] = sides.rare
        sets = tuple(tuple(self.labels[list(one)].tolist()) for one in sides.class_sets)
        return replace(sides, level_side=level_side, factor=factor, rare=rare, class_sets=sets)

    def _spread(self, values: Floats, others: float) -> Float64:
        """Return values whose last axis has K entries with C of them, ``others`` for the other classes."""
        spread = np.full((*values.shape[:-1], self.n_classes), others)
        spread[..., self.labels] = values
        return spread
