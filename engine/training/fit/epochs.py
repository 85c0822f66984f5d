"""A network as the base model of a training: the epochs of a phase, under the phase's rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.training.data.rows import Shards
from engine.training.fit.callbacks import StepEnd
from engine.training.fit.device_loop import run_epoch_on_device
from engine.training.fit.device_rows import StepRows, step_rows
from engine.training.fit.learner import Learner, model_state
from engine.training.fit.loop import run_epoch
from engine.training.fit.sampling import Epoch, plan_epoch
from engine.training.fit.session import Phase, Session
from engine.training.rules import Rule
from operators.arrays import Mask


class Network(Learner):
    """Takes the steps of a phase's epochs. Implements :class:`engine.training.fit.session.PhaseLearner`."""

    def fit_phase(self, phase: Phase, session: Session) -> None:
        """Run the epochs of a phase that are not done yet; with ``keep: best``, take the best one's model."""
        progress, params = session.progress, session.params
        restored = session.kept("rule")
        phase.rule.state = {name: value.numpy() for name, value in restored.items()} or phase.rule.state
        shards, mean_weight = session.weighed_rows(phase.weighted)
        on_device = steps_are_sent_ahead(self.device)
        source = step_rows(shards, session.slots, self.row_losses.answers, self.device) if on_device else None
        while progress.epoch < phase.epochs and not _has_stopped(phase, session):
            self.set_epoch(progress.epoch, phase.epochs)
            place = (session.seed, progress.phase, progress.epoch)
            epoch = plan_epoch(phase.draw, session.slots, session.counts.slot_rows, params.step_rows, place)

            loss = self._run(phase.rule, shards, source, session, epoch, mean_weight)
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

    def _run(
        self,
        rule: Rule,
        shards: Shards,
        source: StepRows | None,
        session: Session,
        epoch: Epoch,
        mean_weight: float,
    ) -> float:
        """Take an epoch's steps, of rows on the device if there is a source of them; return the mean loss."""
        place = session.progress.phase + 1, session.progress.epoch + 1

        def on_step(step: int, rows: int, summed: float | Tensor) -> None:
            unit = self.row_losses.unit
            session.callbacks.on_step(StepEnd(*place, step, rows, lambda: float(summed) / rows * unit))

        if source is None:
            return run_epoch(self, rule, shards, session.slots, epoch, mean_weight, on_step)
        return run_epoch_on_device(self, rule, source, session.slots, epoch, mean_weight, on_step)

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


def steps_are_sent_ahead(device: torch.device) -> bool:
    """Return whether the host sends steps to the device without waiting for each: on a GPU."""
    return device.type == "cuda"


def _has_stopped(phase: Phase, session: Session) -> bool:
    """Return whether the last ``patience`` epochs have not improved the score."""
    best, patience = session.progress.notes.get("best"), session.params.patience
    if best is None or patience is None or not phase.selects:
        return False
    return bool(session.progress.epoch - best["epoch"] >= patience)
