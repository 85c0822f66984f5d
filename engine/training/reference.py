"""The reference beside a trained model: class-balanced ERM on the same train rows, scored on the same rows.

A robust model is worth its price if its worst group is better than that of a model which only balances the
classes. The reference is a training of its own: it is stored beside the others and found again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from connectors.foundation.messages import nearest
from engine.core.errors import InputError, RowsieveError, one_line
from engine.recipe.trainers import LINEAR, TRAINERS, TrainParams, parse_params, trainer_of
from engine.training.evaluation.by_group import INFERRED, Evaluation, Scores
from engine.training.evaluation.regression_scores import RegressionEvaluation
from engine.training.fit.job import training_fingerprint
from engine.training.training_run import TrainResult, TrainSpec, train
from operators.base import Executor

Kind = Literal["auto", "same", "none"]
KINDS: tuple[Kind, ...] = ("auto", "same", "none")
TRAINER = "erm_class_balanced"
MAX_ROWS = 2_000_000
"""Largest number of train rows for which ``auto`` trains a reference."""
OF_ROWS = ("objective", "target", "noise", "standardize")
OF_THE_MACHINE = ("where", "workers", "small_rows", "max_rows", "max_failures", "resources")


@dataclass(frozen=True)
class Reference:
    """Scores of class-balanced ERM; without a model the reason why there is none."""

    model: str = ""
    """Name of the base model, such as ``logistic``."""
    folder: str = ""
    scores: dict[str, Scores] = field(default_factory=dict)
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the reference as JSON-able values."""
        found = {split: scores.to_dict() for split, scores in self.scores.items()}
        return {
            "trainer": TRAINER,
            "model": self.model or None,
            "folder": self.folder or None,
            "reason": self.reason or None,
            "evaluations": found,
        }

    def metrics(self) -> dict[str, float]:
        """Return the scores as ``reference.SPLIT.METRIC``."""
        return {
            key: value
            for split, scores in self.scores.items()
            for key, value in scores.metrics(f"reference.{split}.").items()
        }

    def by_group(self, split: str, grouping: str) -> dict[str, float | None]:
        """Return the accuracy of each group, of a regression its mean loss; empty without a reference."""
        scores = self.scores.get(split)
        if isinstance(scores, Evaluation) and grouping in scores.groupings:
            return {group.group: group.accuracy for group in scores.groupings[grouping].groups}
        if isinstance(scores, RegressionEvaluation) and grouping in scores.groupings:
            return {group.group: group.loss for group in scores.groupings[grouping].groups}
        return {}

    def sentence(self, split: str) -> str:
        """Return the scores on a split, or why there are none, as one sentence."""
        scores = self.scores.get(split)
        if scores is None:
            return f"No reference by class-balanced ERM: {self.reason or f'it has no {split} rows'}."
        worst, mean = scores.ranking(INFERRED)
        what, sign = ("accuracy", 1) if isinstance(scores, Evaluation) else ("mean loss", -1)
        shown = ["–" if value is None else f"{sign * value:.4g}" for value in (mean, worst)]
        return f"Class-balanced ERM ({self.model}) has {what} {shown[0]}, in its worst group {shown[1]}."


def check_kind(text: str, place: str) -> Kind:
    """Return a kind of reference. Raises InputError, which names the place, for any other text."""
    for kind in KINDS:
        if text == kind:
            return kind
    hint = nearest(text, KINDS)
    raise InputError(
        f"{place} {text}: give auto (a linear model), same (the trained model's kind) or none.{hint}"
    )


def reference_params(params: TrainParams, kind: Literal["auto", "same"]) -> TrainParams:
    """Return the parameters of class-balanced ERM of a linear model, or of the trained model's kind."""
    given = params.model_dump(mode="json", exclude_unset=True)
    shared = {key: given[key] for key in (*OF_ROWS, *OF_THE_MACHINE) if key in given}
    linear = LINEAR if params.task == "regression" else "logistic"
    if kind == "auto":
        in_steps = {"where": "auto"} if params.is_estimator else {}
        return parse_params({**shared, "trainer": TRAINER, "model": linear, **in_steps})
    known = set(TRAINERS[TRAINER].model_fields) - {"weights", "sampling", "trainer", "keep", "patience"}
    same = {key: value for key, value in given.items() if key in known}
    return parse_params({"model": params.model, **same, "trainer": TRAINER})


def measure_reference(
    spec: TrainSpec, result: TrainResult, executor: Executor, kind: Kind
) -> Reference | None:
    """Train the reference of a trained model, or find it again, and score it; None for the kind ``none``.

    A reference that cannot be trained never ends the training of the model: the reason says why.
    """
    if kind == "none":
        return None
    n_train = int(result.record["train_rows"])
    if kind == "auto" and n_train > MAX_ROWS:
        return Reference(reason=f"{n_train:,} train rows are more than {MAX_ROWS:,}; ask for it by `same`")
    try:
        params = reference_params(spec.params, kind)
        known = training_fingerprint(result.version, params, spec.seed)
        if trainer_of(spec.params) == TRAINER and known == training_fingerprint(
            result.version, spec.params, spec.seed
        ):
            return Reference(reason="the trained model is class-balanced ERM itself")
        asked = replace(spec, params=params, folder=None, mix_alpha=None, importance=False)
        found = train(asked, executor)
    except RowsieveError as error:
        return Reference(reason=one_line(error, 300))
    return Reference(params.model, str(found.folder), found.scores)
