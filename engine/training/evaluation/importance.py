"""Permutation importance of a trained model by source column, on held-out rows of its version.

A bounded sample of the rows is drawn by a hash of their ids, and one task scores the model on it. The same
figures for any number of shards and workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from connectors.storage import remove_tree
from engine.core.digests import digest
from engine.core.json_files import read_json, write_json
from engine.training.data.features import FeatureMaker
from engine.training.data.row_samples import read_samples, sample_file, write_sample
from engine.training.evaluation.by_group import by_class
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.job import TrainingJob
from engine.training.objectives import losses_of, objective_of
from operators.base import FEATURES, Executor
from operators.hashing import END, row_hashes
from operators.metrics.importance import MIN_DRAWN_ROWS, drawn_rows, max_scored_rows, permutation_importance

RECORD = "importance.json"
SAMPLE = "importance-sample"
FORMAT = 1
PURPOSE = "retrain/importance"
ESTIMATOR_COST = 20.0
"""Cost of a prediction by trees, in those of a linear model or a small network."""
MAX_VALUES = 16_000_000
"""Feature values of the sample, 64 MB."""


def source_blocks(maker: FeatureMaker) -> dict[str, list[int]]:
    """Return for each source column the positions of its features in ``x``.

    ``maker`` must be fitted. Features that one operator such as ``embed`` makes are those of its column.
    """
    from operators.encoded_features import STATE, source_positions
    from operators.ingest.adaptor import STATE as CLASSES

    if (maker.state / STATE).exists():
        return source_positions(maker.state)
    (operator, *_) = (o for o in maker.operators if any(field.name == FEATURES for field in o.adds))
    names = list(getattr(operator.params, "features", None) or operator.source_columns)
    widths = read_json(maker.state / CLASSES).get("widths") or []
    if len(widths) != len(names):
        return {", ".join(names): list(range(maker.n_features))}
    ends = np.cumsum([0, *widths])
    return {name: list(range(ends[i], ends[i + 1])) for i, name in enumerate(names)}


def importance_of(
    job: TrainingJob, model: Ensemble, rows_by_split: dict[str, int], executor: Executor
) -> dict[str, Any] | None:
    """Return the importances of a stored model, computed once for each mixture and kept in its folder.

    Parameters
    ----------
    job
        The training; its feature maker must be fitted and its folder hold the model.
    model
        The stored model.
    rows_by_split
        Scored rows of each split. Validation rows are used, test rows where there are none.
    executor
        Draws rows over shards, and scores them in one task.

    Returns
    -------
    JSON-able: that of ``PermutationImportance.to_dict`` with the ``split``, or the ``reason`` why there are
    none; None without held-out rows.
    """
    split = next((name for name in ("validation", "test") if rows_by_split.get(name)), None)
    if split is None:
        return None
    by_loss = [job.params.objective] if job.params.task == "regression" else []
    key = digest([FORMAT, model.model_weights.tolist(), split, job.seed, *by_loss])
    known = read_importance(job.folder)
    if known is not None and known.get("key") == key:
        return known
    blocks = source_blocks(job.maker)
    record: dict[str, Any] = {"key": key, "split": split}
    if len(blocks) < 2:
        record["reason"] = f"all features come from one column, {next(iter(blocks), 'x')}"
    else:
        record |= _measured(job, model, split, rows_by_split[split], blocks, executor)
    write_json(job.folder / RECORD, record, root=job.root)
    return record


def read_importance(folder: Path) -> dict[str, Any] | None:
    """Return the importances that were kept in a model's folder; None if there are none."""
    try:
        found = read_json(folder / RECORD)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


@dataclass(frozen=True)
class _Draw:
    """Everything that a worker needs to draw rows and to score them. Picklable."""

    job: TrainingJob
    split: str
    last: int
    """Largest hash of a row that is drawn."""
    most: int
    blocks: dict[str, list[int]]


def _measured(
    job: TrainingJob,
    model: Ensemble,
    split: str,
    n_rows: int,
    blocks: dict[str, list[int]],
    executor: Executor,
) -> dict[str, Any]:
    width = max(model.spec.n_features, 1)
    cost = ESTIMATOR_COST if job.params.is_estimator else 1.0
    mixed = max(1, int(np.count_nonzero(model.model_weights)))
    most = max_scored_rows(len(blocks), cost=cost * mixed)
    most = min(most, max(MIN_DRAWN_ROWS, MAX_VALUES // width))
    last = END - 1 if n_rows <= most else most * END // n_rows
    work = _Draw(job, split, last, most, blocks)
    try:
        shards = range(len(job.version.manifest["parts"]))
        drawn = [s for s, n in zip(shards, executor.map(partial(_draw, work), shards), strict=True) if n]
        (found,) = executor.map(partial(_score, work), [drawn], resources=job.params.resources)
    finally:
        remove_tree(job.folder / SAMPLE, root=job.root)
    return dict(found)


def _draw(work: _Draw, shard: int) -> int:
    """Write the drawn rows of a shard; return how many there are. Runs on a worker."""
    data = work.job.dataset()
    rows = data.splits[work.split][shard]
    hashes = row_hashes(rows.row_id, work.job.seed, PURPOSE)
    rows = rows.take(np.flatnonzero(hashes <= np.uint64(work.last)))
    rows = rows.take(drawn_rows(rows.row_id, work.most, work.job.seed, PURPOSE))
    if len(rows):
        groups = by_class(np.array([*data.group_names, -1])[rows.group], rows.y)
        write_sample(sample_file(work.job.folder / SAMPLE, shard), rows, groups, root=work.job.root)
    return len(rows)


def _score(work: _Draw, shards: list[int]) -> dict[str, Any]:
    """Return the importances on the drawn rows. Runs on a worker."""
    if not shards:
        return {"reason": "no held-out row was drawn"}
    from operators.threads import limit_threads

    sample = read_samples([sample_file(work.job.folder / SAMPLE, shard) for shard in shards])
    order = drawn_rows(sample.ids, work.most, work.job.seed, PURPOSE)
    model = Ensemble.load(work.job.folder)
    target = sample.target
    objective = objective_of(work.job.params.objective)
    with limit_threads(max(1, int(work.job.params.resources.cpus))):
        found = permutation_importance(
            model.predict if target is None else model.predict_numbers,
            sample.X[order],
            sample.y[order] if target is None else target[order],
            work.blocks,
            loss=None if target is None else partial(losses_of, objective),
            groups=sample.groups[order],
            random_state=work.job.seed % 2**32,
        )
    return found.to_dict()
