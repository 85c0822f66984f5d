"""A network as the base model of a training: the epochs of a phase, under the phase's rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.training.callbacks import StepEnd
from engine.training.learner import Learner, model_state
from engine.training.loop import run_epoch
from engine.training.sampling import plan_epoch
from engine.training.session import Phase, Session
from operators.arrays import Mask


class Network(Learner):
    """Takes the steps of a phase's epochs. Implements :class:`engine.training.session.Estimator`."""

    def fit_phase(self, phase: Phase, session: Session) -> None:
        """Run the epochs of a phase that are not done yet; with ``keep: best``, take the best one's model."""
        progress, params = session.progress, session.params
        restored = session.kept("rule")
        phase.rule.state = {name: value.numpy() for name, value in restored.items()} or phase.rule.state
        shards, mean_weight = session.weighed_rows(phase.weighted)
        while progress.epoch < phase.epochs and not _has_stopped(phase, session):
            self.set_epoch(progress.epoch, phase.epochs)
            place = (session.seed, progress.phase, progress.epoch)
            epoch = plan_epoch(phase.draw, session.slots, session.counts.slot_rows, params.step_rows, place)

            def on_step(step: int, rows: int, loss: float) -> None:
                at = progress.phase + 1, progress.epoch + 1
                session.callbacks.on_step(StepEnd(*at, step, rows, loss * self.row_losses.unit))

            loss = run_epoch(self, phase.rule, shards, session.slots, epoch, mean_weight, on_step)
            progress.epoch += 1
            loss *= self.row_losses.unit
            note = {"phase": progress.phase, "epoch": progress.epoch, "loss": loss}
            session.note_epoch(note | (self._consider_best(session) if phase.selects else {}))
            done = progress.notes.get("since_checkpoint", 0) + 1
            progress.notes["since_checkpoint"] = done % params.checkpoint_every
            session.keep("rule", {k: torch.from_numpy(np.array(v)) for k, v in phase.rule.state.items()})
            if done == params.checkpoint_every:
                session.save()
        best = session.kept("best")
        if best:
            self.restore(best)
            progress.notes["best_epoch"] = progress.notes["best"]["epoch"]

    def first_errors(self, session: Session) -> dict[int, Mask]:
        """Return slot -> (n,) whether the model is wrong on each train row of this worker's slots."""
        return session.errors("train")

    def _consider_best(self, session: Session) -> dict[str, Any]:
        """Keep the model if the worst group, then the mean score, is better than in earlier epochs."""
        if session.params.keep != "best":
            return {}
        losses = self.row_losses
        found = session.scores("validation", losses)
        note = {name: losses.sign * score for name, score in zip(losses.score_names, found, strict=True)}
        best = session.progress.notes.get("best")
        if best is None or found > tuple(losses.sign * best[name] for name in losses.score_names):
            session.progress.notes["best"] = {"epoch": session.progress.epoch, **note}
            session.keep("best", model_state(self.state()))
        return note


def _has_stopped(phase: Phase, session: Session) -> bool:
    """Return whether the last ``patience`` epochs have not improved the score."""
    best, patience = session.progress.notes.get("best"), session.params.patience
    if best is None or patience is None or not phase.selects:
        return False
    return bool(session.progress.epoch - best["epoch"] >= patience)
