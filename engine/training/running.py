"""Training on a published version and evaluation of the result."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.storage import ObjectPath, Place
from engine.core.errors import InfeasibleError, InputError
from engine.core.json_files import read_key, write_json
from engine.core.output_layout import check_own_files, check_real_folders, output_of
from engine.core.suggestions import nearest
from engine.recipe.trainers import TrainParams, check_target
from engine.storage.lease import hold_lease
from engine.storage.object_run_store import synced_executor, working_copy
from engine.storage.state_sync import SyncingExecutor
from engine.training.ensemble import Ensemble
from engine.training.estimators import check_model
from engine.training.evaluation import (
    ALPHAS,
    INFERRED,
    Evaluation,
    Scores,
    by_class,
    mixtures_for,
    summarise,
)
from engine.training.importance import importance_of
from engine.training.job import RECORD, TrainingJob, read_record, remix, run_job, training_fingerprint
from engine.training.metric_sums import sum_over_rows
from engine.training.regression_scores import RegressionEvaluation, sum_numbers, summarise_numbers
from engine.training.rows import GroupedRows, join
from engine.training.strength import choose_strength
from engine.training.version import Version, open_version
from operators.arrays import Int64
from operators.base import SPLIT, Executor, OperatorError, ResourceError

EVALUATION = "evaluation.json"
NUMERIC = re.compile(r"(u?int|half|float|double|decimal)")
"""Beginning of the names of Arrow's numeric types."""
PIECES = 32
"""Maximum number of tasks that share the scoring of a split."""


@dataclass(frozen=True)
class TrainSpec:
    """Specification of one training."""

    dataset: str | Place
    """Folder of a version, or a recipe's output folder, ``OUTPUT`` or ``OUTPUT@VERSION``."""
    params: TrainParams
    seed: int = 0
    folder: Path | None = None
    """Folder of the model. Default ``OUTPUT/models/<fingerprint>``: the same training is found again."""
    truth: str | None = None
    """A published column with true groups. It is used for evaluation only."""
    mix_alpha: float | None = None
    """Mix the base models of ``boosted_cvar`` for this tail; no model is trained."""
    alphas: Sequence[float] = ALPHAS
    importance: bool = False
    """Measure the permutation importance of every source column too; see ``engine.training.importance``."""


@dataclass(frozen=True)
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


def train(spec: TrainSpec, executor: Executor) -> TrainResult:
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
    if spec.params.target is not None:
        check_numeric(version, spec.params.target)
    check_real_folders(version.output)
    name = training_fingerprint(version, spec.params, spec.seed)[:12]
    place = output_of(spec.folder or version.output / "models" / name)
    try:
        with (
            hold_lease(place, f"rowsieve retrain on {version.name}"),
            working_copy(place) as folder,
            synced_executor(executor, place, folder) as executor,
        ):
            check_own_files(folder, "the folder of a model")
            job = TrainingJob(version, spec.params, spec.seed, folder)
            reused = (folder / RECORD).exists()
            if reused:
                read_record(folder)  # before hours go into scores
            else:
                check_model(spec.params, int(version.manifest["summary"]["splits"].get("train", 0)))
                job.maker.fit(executor)
                choose_strength(version, job.maker, spec.params, spec.seed, folder, executor)
                _run(job, executor, place)
            model = _mixed(spec, job)
            scores = score(job, model, executor, truth=spec.truth, alphas=spec.alphas)
            found = {split: scored.to_dict() for split, scored in scores.items()}
            write_json(folder / EVALUATION, found, root=job.root)
            rows = {split: scored.rows for split, scored in scores.items()}
            importance = importance_of(job, model, rows, executor) if spec.importance else None
    except ResourceError as error:
        raise InfeasibleError(str(error)) from None
    except OperatorError as error:
        raise InputError(str(error)) from None
    record = read_record(folder)
    return TrainResult(folder, version, model, scores, record, reused, place, importance)


def _mixed(spec: TrainSpec, job: TrainingJob) -> Ensemble:
    """Return the stored base models with the mixture that the spec asks for; store it if it is new."""
    stored = Ensemble.load(job.folder)
    model = remix(stored, spec.params)
    if spec.mix_alpha is not None:
        model = model.reweight(spec.mix_alpha)
    if not np.array_equal(model.model_weights, stored.model_weights):
        model.save(job.folder, root=job.root)
    return model


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


def _run(job: TrainingJob, executor: Executor, place: Place) -> None:
    if trains_on_ray(job.version, job.params, executor):
        # Not at the top: without Ray, and where one task is enough, it costs seconds for nothing.
        from engine.training.on_ray import run_on_ray

        apart = isinstance(executor, SyncingExecutor) and isinstance(place, ObjectPath)
        run_on_ray(job, place if isinstance(place, ObjectPath) and apart else None)
        return
    list(executor.map(run_job, [job], resources=job.params.resources))


def score(
    job: TrainingJob,
    model: Ensemble,
    executor: Executor,
    *,
    folder: Path | None = None,
    truth: str | None = None,
    alphas: Sequence[float] = ALPHAS,
    splits: Sequence[str] = ("validation", "test"),
    source: RowSource | None = None,
    first_shard: int = 0,
) -> dict[str, Scores]:
    """Evaluate a model on a version's splits, shard by shard; splits without rows are left out.

    The model may be another than the job's, stored in ``folder``: both sides of a comparison see the same
    rows. Workers load the base models from there. ``source`` says how it sees the rows; ``first_shard``
    leaves out the shards before it. Several splits are joined by "+", as in ``train+validation``.
    """
    pieces = row_pieces(job, first_shard)
    known: dict[str, dict[Any, int]] = {INFERRED: _inferred_rows(job)}
    if truth:
        check_column(job.version, truth)
        known["true"] = dict(sum(executor.map(partial(count_truth, job, truth), pieces), Counter()))
    objective = job.params.objective if job.params.task == "regression" else None
    mixtures = mixtures_for(model, alphas)
    found: dict[str, Scores] = {}
    for split in splits:
        work = partial(
            sum_over_shards,
            job,
            folder or job.folder,
            split,
            truth,
            [model.model_weights, *mixtures],
            source=source,
        )
        whole, *others = executor.map(work, pieces)
        for part in others:
            whole.add(part)
        if whole.n:
            found[split] = (
                summarise(whole, model, alphas, known)
                if objective is None
                else summarise_numbers(whole, objective, known)
            )
    return found


def row_pieces(job: TrainingJob, first_shard: int = 0) -> list[list[int]]:
    """Return the shards of a version from ``first_shard`` on, as the work of at most ``PIECES`` tasks."""
    shards = np.arange(first_shard, len(job.version.manifest["parts"]))
    return [part.tolist() for part in np.array_split(shards, min(PIECES, len(shards)))]


class RowSource(Protocol):
    """Gives a model the rows of a version whose features were made for another model. Picklable."""

    def __call__(self, job: TrainingJob, rows: GroupedRows, shard: int) -> GroupedRows:
        """Return the rows of a shard with the model's own features and class indices."""
        ...


def check_column(version: Version, name: str, key: str = "truth") -> None:
    """Raise InputError if the version has no such column."""
    names = [str(field["name"]) for field in version.manifest["schema"]]
    if name not in names:
        hint = nearest(name, names) or f" There are: {', '.join(names)}."
        raise InputError(f"{key}: the version {version.name} has no column {name!r}.{hint}")


def check_numeric(version: Version, target: str) -> None:
    """Raise InputError unless a version has a numeric column of this name that is no feature."""
    check_column(version, target, "train.target")
    kinds = {str(field["name"]): str(field["type"]) for field in version.manifest["schema"]}
    if not NUMERIC.match(kinds[target]):
        raise InputError(
            f"train.target: the column {target!r} of version {version.name} has the type {kinds[target]}. A "
            f"regression predicts whole numbers, fractions or decimals."
        )
    if target in version.manifest["source"]["features"]:
        raise InputError(
            f"train.target: {target!r} is a feature of version {version.name}, so that a model would read "
            f"what it is to predict. Set source.exclude: [{target}] in the recipe and run it again."
        )


def sum_over_shards(
    job: TrainingJob,
    folder: Path,
    split: str,
    truth: str | None,
    mixtures: Sequence[npt.NDArray[np.float64]],
    shards: Sequence[int],
    source: RowSource | None = None,
) -> Any:
    """Count at least one shard of a split by the first mixture of the folder's models. Runs on a worker.

    Returns the sums of a classification or of a regression, as the job's objective asks.
    """
    model = replace(Ensemble.load(folder), model_weights=mixtures[0])
    data = job.dataset()
    names = np.array([*data.group_names, -1])
    parts_of_sums: list[Any] = []
    for shard in shards:
        rows = join([data.splits[name][shard] for name in split.split("+")])
        groupings: dict[str, npt.NDArray[Any]] = {INFERRED: by_class(names[rows.group], rows.y)}
        if truth:
            groupings["true"] = truth_of(job, truth, shard, rows.row_id)
        seen = rows if source is None or not len(rows) else source(job, rows, shard)
        if job.params.task == "regression":
            parts_of_sums.append(sum_numbers(model, seen, groupings, job.params.objective))
        else:
            parts_of_sums.append(sum_over_rows(model, seen.X, seen.y, groupings, mixtures[1:]))
    for part in parts_of_sums[1:]:
        parts_of_sums[0].add(part)
    return parts_of_sums[0]


def count_truth(job: TrainingJob, truth: str, shards: Sequence[int]) -> Counter[str]:
    """Count the train rows of each true group in some shards. Runs on a worker."""
    found: Counter[str] = Counter()
    split = job.version.prefix + SPLIT
    for shard in shards:
        table = job.version.reader().read_source(shard, [split, truth])
        mine = pc.equal(table.column(split).cast(pa.string()), "train")
        found.update(_texts(table.column(truth).filter(mine)).tolist())
    return found


def truth_of(job: TrainingJob, truth: str, shard: int, row_ids: Int64) -> npt.NDArray[Any]:
    """Return the true group of some rows of a shard as text (n,)."""
    reader = job.version.reader()
    values = _texts(reader.read_source(shard, [truth]).column(truth))
    return values[row_ids - reader.shards[shard].first_row]


def _texts(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = column.cast(pa.string()).fill_null("null").to_numpy().astype(str)
    return values


def _inferred_rows(job: TrainingJob) -> dict[int, int]:
    groups = read_key(job.folder / RECORD, "groups", dict)
    return {int(group): rows for group, rows in groups.items()}
