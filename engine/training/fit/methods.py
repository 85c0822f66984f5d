"""Trainers as sequences of phases. Boosting is in :mod:`engine.training.fit.boosting`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from engine.recipe.trainers import JttParams, TrainParams, trainer_of
from engine.training.fit.boosting import Boosted
from engine.training.fit.last_layer import Dfr
from engine.training.fit.learner import model_state
from engine.training.fit.sampling import Draw, balance
from engine.training.fit.session import Method, Phase, Session
from engine.training.rules import Erm, rule_of


def draw_of(session: Session) -> Draw:
    """Return how an epoch draws rows, as ``params.sampling`` says."""
    params, counts = session.params, session.counts
    if params.sampling == "shuffle":
        return Draw()
    weight = session.of_rows("train", lambda rows: rows.weight if params.weights else np.ones(len(rows)))
    if params.sampling == "weight":
        return Draw(weights=weight)
    group = session.of_rows("train", lambda rows: rows.group)
    mass = counts.group_weight if params.weights else counts.group_rows.astype(float)
    return Draw(weights={slot: weight[slot] * balance(mass)[group[slot]] for slot in weight})


class SinglePhase:
    """A trainer of one phase under one rule: erm and its baselines, gdro, the DOROs, installed rules."""

    n_phases = 1

    def __init__(self, params: TrainParams) -> None:
        self._params = params

    def prepare(self, phase: int, session: Session) -> None:
        """Implement the method of :class:`engine.training.fit.session.Method`."""

    def phase(self, phase: int, session: Session) -> Phase:
        """Implement the method of :class:`engine.training.fit.session.Method`."""
        return Phase(rule_of(self._params, session.counts), draw_of(session), self._params.n_epochs)

    def finish(self, session: Session) -> int:
        """Implement the method of :class:`engine.training.fit.session.Method`."""
        session.model_store.put(0, model_state(session.learner.state()))
        return 1


class Jtt(SinglePhase):
    """Just train twice (Liu et al. 2021): a second model sees the first one's errors more often.

    The errors are those of the first phase's last epoch, whatever ``keep`` says. The second model starts from
    the same initial weights. Repeats are whole rows of the epoch, as in the paper, so an epoch of the second
    phase has n + (upweight - 1) |error set| rows.
    """

    n_phases = 2

    def __init__(self, params: JttParams) -> None:
        super().__init__(params)
        self._jtt = params

    def prepare(self, phase: int, session: Session) -> None:
        """Implement the method of :class:`engine.training.fit.session.Method`."""
        if phase == 0:
            session.keep("initial", model_state(session.learner.state()))
            return
        wrong = session.learner.first_errors(session)
        session.progress.by_slot["times"] = {
            slot: np.where(wrong[slot], self._jtt.upweight, 1).astype(np.int64) for slot in wrong
        }
        session.learner.restore(session.kept("initial"))

    def phase(self, phase: int, session: Session) -> Phase:
        """Implement the method of :class:`engine.training.fit.session.Method`."""
        if phase == 0:
            # An estimator's errors are those of models that have not seen the row, so none is fitted first.
            epochs = 0 if self._jtt.is_estimator else self._jtt.first_epochs
            return Phase(Erm(), draw_of(session), epochs, selects=False)
        return Phase(Erm(), Draw(times=session.progress.by_slot["times"]), self._jtt.n_epochs)


METHODS: Mapping[str, Callable[[Any], Method]] = MappingProxyType(
    {"jtt": Jtt, "boosted_cvar": Boosted, "dfr": Dfr}
)
"""Trainers of several phases, or with a last step of their own; the others have one phase under one rule."""


def method_of(params: TrainParams) -> Method:
    """Return the trainer of the given parameters."""
    return METHODS.get(trainer_of(params), SinglePhase)(params)
