"""Scores of a model on the splits of a version, shard by shard; a column may name true groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.training.data.rows import GroupedRows, join
from engine.training.data.version import Version
from engine.training.evaluation.by_group import ALPHAS, INFERRED, Scores, by_class, mixtures_for, summarise
from engine.training.evaluation.metric_sums import TrueClasses, sum_over_rows
from engine.training.evaluation.regression_scores import sum_numbers, summarise_numbers
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.job import TrainingJob
from operators.arrays import Float64, Int64
from operators.base import SPLIT, Executor
from operators.columns import is_binary

PIECES = 32
"""Maximum number of tasks that share the scoring of a split."""


@dataclass(frozen=True)
class GroupFacts:
    """Facts about the inferred groups of a version on which the scores of any model depend."""

    train_rows: Mapping[int, int] = field(default_factory=dict)
    """Rows of each group that a model was trained on; without them there is no average accuracy."""
    wrong_labels: Mapping[int, float] = field(default_factory=dict)
    """Estimated share of wrong labels in each group that has some."""

    @classmethod
    def of_record(cls, record: Mapping[str, Any], version: Version) -> GroupFacts:
        """Return the facts that the ``training.json`` of a training on a version holds.

        A training of an earlier release that is found again has recorded no wrong labels, nor has one whose
        rows are those of an earlier version without estimates: then they are what the version says.
        """
        rows = {int(group): int(n) for group, n in record["groups"].items()}
        return cls(rows, _by_number(record.get("wrong_labels") or version.wrong_labels()))

    @classmethod
    def of_version(cls, version: Version) -> GroupFacts:
        """Return the facts of a version for a model that was trained on the rows of another."""
        return cls(wrong_labels=_by_number(version.wrong_labels()))


def score(
    job: TrainingJob,
    model: Ensemble,
    executor: Executor,
    groups: GroupFacts,
    *,
    folder: Path | None = None,
    truth: str | None = None,
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
    known: dict[str, dict[Any, int]] = {INFERRED: dict(groups.train_rows)}
    if truth:
        known["true"] = dict(sum(executor.map(partial(count_truth, job, truth), pieces), Counter()))
    objective = job.params.objective if job.params.task == "regression" else None
    mixtures = mixtures_for(model, ALPHAS)
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
                summarise(whole, model, ALPHAS, known, wrong_labels=groups.wrong_labels)
                if objective is None
                else summarise_numbers(whole, objective, known)
            )
    return found


def _by_number(shares: Mapping[str, float]) -> dict[int, float]:
    return {int(group): float(share) for group, share in shares.items()}


def row_pieces(job: TrainingJob, first_shard: int = 0) -> list[list[int]]:
    """Return the shards of a version from ``first_shard`` on, as the work of at most ``PIECES`` tasks."""
    shards = np.arange(first_shard, len(job.version.manifest["parts"]))
    return [part.tolist() for part in np.array_split(shards, min(PIECES, len(shards)))]


class RowSource(Protocol):
    """Gives a model the rows of a version whose features were made for another model. Picklable."""

    def __call__(self, job: TrainingJob, rows: GroupedRows, shard: int) -> GroupedRows:
        """Return the rows of a shard with the model's own features and class indices.

        The index is negative for a row that the model cannot read, and for a class that it does not know.
        """
        ...

    def places(self, job: TrainingJob) -> Int64:
        """Return the model's own index of each class of the job (C,), negative for one it does not know."""
        ...


def sum_over_shards(
    job: TrainingJob,
    folder: Path,
    split: str,
    truth: str | None,
    mixtures: Sequence[Float64],
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
            classes = None if source is None else TrueClasses(rows.y, source.places(job))
            parts_of_sums.append(sum_over_rows(model, seen.X, seen.y, groupings, mixtures[1:], classes))
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
    """Return values as texts (n,); bytes that are no text are written out."""
    if is_binary(column.type):
        read = [
            None if value is None else value.decode("utf-8", "backslashreplace")
            for value in column.to_pylist()
        ]
        column = pa.chunked_array([pa.array(read, pa.string())])
    values: npt.NDArray[Any] = column.cast(pa.string()).fill_null("null").to_numpy().astype(str)
    return values
