"""One training on a published version: its specification, the work, and the result with its scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from connectors.storage import ObjectPath, Place
from engine.core.errors import InfeasibleError, InputError
from engine.core.json_files import write_json
from engine.core.output_layout import check_own_files, check_real_folders, output_of
from engine.recipe.trainers import TrainParams, check_target
from engine.storage.lease import hold_lease
from engine.storage.object_run_store import synced_executor, working_copy
from engine.storage.state_sync import SyncingExecutor
from engine.training.data.column_checks import check_inputs, check_numeric, check_truth
from engine.training.data.strength import choose_strength
from engine.training.data.version import Version, open_version
from engine.training.evaluation.by_group import Evaluation, Scores
from engine.training.evaluation.importance import importance_of
from engine.training.evaluation.regression_scores import RegressionEvaluation
from engine.training.evaluation.split_scores import GroupFacts, score
from engine.training.fit.callbacks import EpochEnd
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.estimators import check_model
from engine.training.fit.job import RECORD, TrainingJob, read_record, remix, run_job, training_fingerprint
from engine.training.fit.progress import progress_read
from operators.base import Executor, OperatorError, ResourceError

EVALUATION = "evaluation.json"


@dataclass(frozen=True)
class TrainSpec:
    """Specification of one training."""

    dataset: str | Place
    """Folder of a version, or a recipe's output folder, ``OUTPUT`` or ``OUTPUT@VERSION``."""
    params: TrainParams
    seed: int = 0
    folder: Path | None = None
    """Folder of the model. Default ``OUTPUT/models/<fingerprint>``: the same training is found again. A
    folder that holds the model of another training is refused."""
    truth: str | None = None
    """A published column with true groups. It is used for evaluation only."""
    mix_alpha: float | None = None
    """Mix the base models of ``boosted_cvar`` for this tail; no model is trained."""
    importance: bool = False
    """Measure the permutation importance of every source column too; see
    ``engine.training.evaluation.importance``."""


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """Result of a training: the model, its scores and where they are stored."""

    folder: Path
    """Folder of the model on this host; a copy if the output is on an object store."""
    version: Version
    model: Ensemble
    scores: dict[str, Scores]
    """Split -> scores on its rows, for every split that has rows."""
    record: dict[str, Any]
    """``training.json``: curve, rows, groups."""
    reused: bool
    """Whether the model was there already."""
    place: Place
    """Folder or prefix that holds the model."""
    importance: dict[str, Any] | None = None
    """Permutation importance by source column; None if it was not asked for, or without held-out rows."""

    @property
    def evaluations(self) -> dict[str, Evaluation]:
        """The scores of a classification by split; empty for a regression."""
        return {split: found for split, found in self.scores.items() if isinstance(found, Evaluation)}

    @property
    def regressions(self) -> dict[str, RegressionEvaluation]:
        """The scores of a regression by split; empty for a classification."""
        found = self.scores.items()
        return {split: scores for split, scores in found if isinstance(scores, RegressionEvaluation)}


class Watcher(Protocol):
    """Follows a training that is not found again; it is told in the process that started the training."""

    def start(self, job: TrainingJob, place: Place) -> None:
        """Prepare for a training that starts now, whose lease the caller holds."""
        ...

    def tell(self, epochs: Sequence[EpochEnd]) -> None:
        """Take note of epochs that have ended, in a thread of its own."""
        ...


def train(spec: TrainSpec, executor: Executor, watcher: Watcher | None = None) -> TrainResult:
    """Train on a version, unless the same training has finished before, and score the model.

    An interrupted training continues from its last checkpoint. ``params.where`` decides whether one task or
    Ray Train's workers train the model; by default this depends on the number of rows. The bytes are the
    same.

    Raises
    ------
    InputError
        No such version, a link in place of a folder of its output, no rows to train on, a model that
        cannot be used, or a loss that is not a number.
    InfeasibleError
        The cluster has no room for a worker.
    LockedError
        The same training runs elsewhere.
    """
    _check_mix(spec)
    check_target(spec.params, "train")
    version = open_version(spec.dataset)
    if spec.truth:
        check_truth(version, spec.truth)
    if spec.params.target is not None:
        check_numeric(version, spec.params.target)
    if spec.params.is_pretrained:
        check_inputs(version, str(spec.params.model_params["column"]))
    check_real_folders(version.output)
    fingerprint = training_fingerprint(version, spec.params, spec.seed)
    place = output_of(spec.folder or version.output / "models" / fingerprint[:12])
    try:
        with (
            hold_lease(place, f"rowsieve retrain on {version.name}") as lease,
            working_copy(place, lease) as folder,
            synced_executor(executor, place, folder) as executor,
        ):
            check_own_files(folder, "the folder of a model")
            job = TrainingJob(version, spec.params, spec.seed, folder)
            reused = (folder / RECORD).exists()
            if reused:
                _check_same_training(folder, fingerprint)  # before hours go into scores
            else:
                check_model(spec.params, int(version.manifest["summary"]["splits"].get("train", 0)))
                job.maker.fit(executor)
                choose_strength(version, job.maker, spec.params, spec.seed, folder, executor)
                _watched(job, executor, place, watcher)
            model = _mixed(spec, job)
            record = read_record(folder)
            scores = score(job, model, executor, GroupFacts.of_record(record, version), truth=spec.truth)
            found = {split: scored.to_dict() for split, scored in scores.items()}
            write_json(folder / EVALUATION, found, root=job.root)
            rows = {split: scored.rows for split, scored in scores.items()}
            importance = importance_of(job, model, rows, executor) if spec.importance else None
    except ResourceError as error:
        raise InfeasibleError(str(error)) from None
    except OperatorError as error:
        raise InputError(str(error)) from None
    return TrainResult(
        folder=folder,
        version=version,
        model=model,
        scores=scores,
        record=record,
        reused=reused,
        place=place,
        importance=importance,
    )


def _mixed(spec: TrainSpec, job: TrainingJob) -> Ensemble:
    """Return the stored base models with the mixture that the spec asks for; store it if it is new."""
    stored = Ensemble.load(job.folder)
    model = remix(stored, spec.params, spec.mix_alpha)
    if model.about != stored.about or not np.array_equal(model.model_weights, stored.model_weights):
        model.save(job.folder, root=job.root)
    return model


def _check_same_training(folder: Path, fingerprint: str) -> None:
    """Raise InputError if a folder holds another training's model; earlier releases wrote no fingerprint."""
    record = read_record(folder)
    if (record.get("fingerprint") or fingerprint) != fingerprint:
        raise InputError(
            f"{folder} holds the model of another training ({record['trainer']}), with another version, "
            f"other parameters or another seed. Give an empty folder, or leave out `folder`."
        )


def _check_mix(spec: TrainSpec) -> None:
    if spec.mix_alpha is None:
        return
    if spec.params.mixture is None:
        raise InputError(
            "--alpha mixes the base models of boosted_cvar for another tail; other trainers have one model. "
            "The tail of cvar_doro and chi2_dro is --set alpha=..."
        )
    if not 0 < spec.mix_alpha <= 1:
        raise InputError(f"--alpha {spec.mix_alpha}: give the share of rows in the tail, 0 < alpha <= 1.")


def trains_on_ray(version: Version, params: TrainParams, executor: Executor) -> bool:
    """Return whether the training runs on Ray Train's workers instead of one task. Raises InputError."""
    on_ray = executor.kind == "ray" or isinstance(executor, SyncingExecutor)
    if params.where == "ray" and not on_ray:
        raise InputError("train.where is 'ray', but the executor is local. Set it to 'auto', or run on Ray.")
    if params.is_estimator:
        return False
    if params.where != "auto":
        return params.where == "ray"
    n_train = int(version.manifest["summary"]["splits"].get("train", 0))
    return on_ray and n_train > params.small_rows


def _watched(job: TrainingJob, executor: Executor, place: Place, watcher: Watcher | None) -> None:
    """Train, and tell the watcher of every epoch."""
    if watcher is None:
        _run(job, executor, place)
        return
    watcher.start(job, place)
    root = job.root if isinstance(place, Path) else place
    with progress_read(place, root, watcher.tell):
        _run(replace(job, progress=place), executor, place)


def _run(job: TrainingJob, executor: Executor, place: Place) -> None:
    if trains_on_ray(job.version, job.params, executor):
        # Not at the top: without Ray, and where one task is enough, it costs seconds for nothing.
        from engine.training.fit.on_ray import run_on_ray

        apart = isinstance(executor, SyncingExecutor) and isinstance(place, ObjectPath)
        run_on_ray(job, place if isinstance(place, ObjectPath) and apart else None)
        return
    list(executor.map(run_job, [job], resources=job.params.resources))
