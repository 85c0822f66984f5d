"""Callbacks of a training, which are called after every step, epoch and phase.

They get numbers and cannot change the training, so the model has the same bytes with and without them. A
program passes them to :func:`engine.training.fit.in_memory.fit_arrays`; an installed package adds them to
every training on a published version by an entry point of the group ``rowsieve.training_callbacks``, which
names a function without arguments, or a class, that returns a :class:`Callback`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from connectors.foundation.installed import entry_points

ENTRY_POINTS = "rowsieve.training_callbacks"
_log = logging.getLogger("rowsieve")


@dataclass(frozen=True)
class StepEnd:
    """A step down the gradient that has been taken. Steps, epochs and phases are counted from 1."""

    phase: int
    epoch: int
    step: int
    rows: int
    """Rows of the step, over all workers."""
    read_loss: Callable[[], float] = field(repr=False, compare=False)
    """Returns :attr:`loss`."""

    @property
    def loss(self) -> float:
        """Return their mean loss before the step, in the objective's unit: nats of the cross-entropy.

        On a GPU this waits for the step; who reads it in every step makes the training slower.
        """
        return self.read_loss()


@dataclass(frozen=True)
class EpochEnd:
    """An epoch that has ended, or, of an estimator, its only fit of the phase."""

    phase: int
    epoch: int
    loss: float
    """Mean loss of the epoch's rows, each before its step; of an estimator, after the fit."""
    accuracy: float | None = None
    """Accuracy on validation rows; None unless ``keep`` is best."""
    worst_group_accuracy: float | None = None
    """Accuracy of the worst inferred group on validation rows; None unless ``keep`` is best."""
    mean_loss: float | None = None
    """Mean loss of a regression on validation rows; None unless ``keep`` is best."""
    worst_group_loss: float | None = None
    """Mean loss of the worst inferred group, of a regression; None unless ``keep`` is best."""
    number: int = 0
    """Epochs so far, over all phases: the position of this epoch in the curve of the training."""
    total: int = 0
    """Epochs of the whole training as far as known: fewer come if a phase stops early."""


@dataclass(frozen=True)
class PhaseEnd:
    """A phase that has ended: a training has one, two with JTT, one for each round of boosting."""

    phase: int
    phases: int
    """Phases of the whole training."""


@runtime_checkable
class Callback(Protocol):
    """Called on one worker, in the order of the training.

    A training that was interrupted continues from its last checkpoint, so later epochs are reported again.
    An exception of a callback ends the training in the same way.
    """

    def on_step(self, event: StepEnd) -> None:
        """Take note of a step. Estimators and models that L-BFGS solves take none."""
        ...

    def on_epoch(self, event: EpochEnd) -> None:
        """Take note of an epoch."""
        ...

    def on_phase_end(self, event: PhaseEnd) -> None:
        """Take note of the end of a phase."""
        ...


class Callbacks:
    """Several callbacks as one, silent on all workers but the first."""

    def __init__(self, callbacks: Sequence[Callback] = (), rank: int = 0) -> None:
        self._callbacks = tuple(callbacks) if rank == 0 else ()

    def on_step(self, event: StepEnd) -> None:
        """Tell all callbacks of a step."""
        for callback in self._callbacks:
            callback.on_step(event)

    def on_epoch(self, event: EpochEnd) -> None:
        """Tell all callbacks of an epoch."""
        for callback in self._callbacks:
            callback.on_epoch(event)

    def on_phase_end(self, event: PhaseEnd) -> None:
        """Tell all callbacks of the end of a phase."""
        for callback in self._callbacks:
            callback.on_phase_end(event)


def installed_callbacks() -> list[Callback]:
    """Return the callbacks of installed packages, by name. A warning names one that fails to load."""
    found: list[Callback] = []
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: one.name):
        try:
            made = point.load()()
        except Exception as error:  # a plugin may raise anything
            why = f"does not load: {type(error).__name__}: {error}"
        else:
            if isinstance(made, Callback):
                found.append(made)
                continue
            why = "lacks one of the methods on_step, on_epoch and on_phase_end"
        _log.warning("The training callback %s (%s) %s; it is skipped", point.name, point.value, why)
    return found
