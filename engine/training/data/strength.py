"""The strength of weighting that a training uses: measured on train rows, chosen by the user's rule.

``max_mean_loss`` asks for the largest strength whose mean accuracy is little below the best and whose worst
group is no worse than without weights (``operators.cues.models.curve_points``). Workers write a bounded
sample of the train rows, one task measures the curve by linear models, and ``strength.json`` beside the model
keeps curve and choice. Every worker of the training then weighs its rows by that file. Validation and test
rows, which report the score, are not read, and neither is a true group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from connectors.storage import make_folder, remove_tree
from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.json_files import read_json, write_json
from engine.recipe.trainers import TrainParams
from engine.training.data.features import FeatureMaker, dataset_of_version
from engine.training.data.row_samples import read_samples, sample_file, write_sample
from engine.training.data.rows import NO_GROUP, GroupedRows
from engine.training.data.version import Version, root_of
from operators.arrays import Float64, Int64
from operators.base import Executor, copy_state
from operators.hashing import END, row_hashes

if TYPE_CHECKING:
    from operators.cues.models.weight_path import WeightPath
    from operators.cues.state import CueState

RECORD, CUES, SAMPLE = "strength.json", "strength-cues", ".strength-sample"
MAX_ROWS, MAX_VALUES = 50_000, 32_000_000
"""Rows of the sample, and feature values: above 640 features fewer rows are drawn."""
CAP, MIN_EFFECTIVE = 20.0, 0.1
Cells = Counter[tuple[int, int]]
"""Rows of each class and published group (-1 - class for rows in none)."""


def max_mean_loss_of(params: TrainParams) -> float | None:
    """Return the rule by which the strength is chosen; None: the weights stay as published."""
    found: float | None = getattr(params, "max_mean_loss", None)
    return found


def fingerprint_parts(version: Version, params: TrainParams) -> list[Any]:
    """Return the parts of the fingerprint that the chosen weights add: the state of ``cues``."""
    if max_mean_loss_of(params) is None:
        return []
    return [
        digest([entry["fingerprint"] for entry in version.manifest["operators"] if entry["name"] == "cues"])
    ]


@dataclass(frozen=True)
class StrengthWeights:
    """Weights of the chosen strength for any rows of a version. Picklable."""

    folder: Path
    """Folder of the training."""

    def __call__(self, rows: GroupedRows, names: tuple[int, ...]) -> GroupedRows:
        """Return the rows with other weights; rows of weight 0 keep it. ``names``: groups by their index."""
        if not len(rows):
            return rows
        path, strength, factor_of = self._opened
        made = path.weights(strength, factor_of(rows, numbers_of(rows, names)), rows.y)
        return replace(rows, weight=np.where(rows.weight > 0, made, 0.0))

    @cached_property
    def _opened(self) -> tuple[WeightPath, float, Factor]:
        from operators.cues.limits import Limits
        from operators.cues.models.weight_path import WeightPath

        record = read_strength(self.folder)
        kept = record["path"]
        limits = Limits(np.array(kept["mean"]), np.array(kept["trust"]), kept["cap"])
        counts = np.array(kept["counts"], np.int64)
        return WeightPath(counts, limits), record["strength"], Factor.open(self.folder, record)


@dataclass(frozen=True)
class Factor:
    """The robust factor at full strength: of ``cues``, else balance of the groups inside each class."""

    state: CueState | None
    cells: Mapping[tuple[int, int], float]
    """Factor of each class and group, where there is no state."""

    @classmethod
    def open(cls, folder: Path, record: Mapping[str, Any]) -> Factor:
        """Read the record that ``choose_strength`` wrote."""
        if record["end"] == "cues":
            from operators.cues.serialise import load_state

            return cls(load_state(folder / CUES), {})
        return cls(None, {(c, g): value for c, g, value in record.get("cells", ())})

    def __call__(self, rows: GroupedRows, numbers: Int64) -> Float64:
        """Return the factor of each row, shape (n,), given the rows' published groups."""
        if self.state is None:
            keys = zip(rows.y.tolist(), numbers.tolist(), strict=True)
            return np.array([self.cells.get(key, 1.0) for key in keys])
        from operators.cues.row_weights import full_factor

        return full_factor(self.state, rows.X, rows.y, rows.row_id)

    def right_label(self, rows: GroupedRows) -> Float64 | None:
        """Return the probability that the label of each row is right, shape (n,), where it is known."""
        if self.state is None:
            return None
        from operators.cues.row_weights import right_label

        return right_label(self.state, rows.X, rows.y)


def numbers_of(rows: GroupedRows, names: tuple[int, ...]) -> Int64:
    """Return the published group of each row, shape (n,); -1 - class for rows in none."""
    known = np.array([*names, NO_GROUP])[rows.group]
    return np.asarray(np.where(known < 0, -1 - rows.y, known))


def strength_weights_of(params: TrainParams, folder: Path) -> StrengthWeights | None:
    """Return the function that gives rows the chosen weights; None: the published weights are used."""
    return None if max_mean_loss_of(params) is None else StrengthWeights(folder)


def read_strength(folder: Path) -> dict[str, Any]:
    """Return the content of ``strength.json``."""
    found: dict[str, Any] = read_json(folder / RECORD)
    return found


def summary_of(folder: Path) -> dict[str, Any] | None:
    """Return the strength for the record of a training; None if no rule was given."""
    if not (folder / RECORD).exists():
        return None
    found = read_strength(folder)
    return {key: found[key] for key in ("strength", "max_mean_loss", "end", "trade_off")}


@dataclass(frozen=True)
class SampleTask:
    """Inputs of the worker that draws train rows and measures the curve. Picklable."""

    version: Version
    maker: FeatureMaker
    params: TrainParams
    seed: int
    folder: Path
    last: int
    """Largest hash of a row that is drawn."""


def choose_strength(
    version: Version, maker: FeatureMaker, params: TrainParams, seed: int, folder: Path, executor: Executor
) -> None:
    """Measure the curve on train rows and write ``strength.json``, unless it is there or not asked for.

    ``maker`` must be fitted. The same file for any number of shards and workers.

    Raises
    ------
    InputError
        The train rows are too few.

    """
    if max_mean_loss_of(params) is None or (folder / RECORD).exists():
        return
    n_train = int(version.manifest["summary"]["splits"].get("train", 0))
    wanted = max(min(MAX_ROWS, MAX_VALUES // max(maker.n_features, 1)), 1)
    last = END - 1 if n_train <= wanted else wanted * END // n_train
    task = SampleTask(version, maker, params, seed, folder, last)
    _copy_cues_state(version, folder)
    try:
        cells: Cells = Counter()
        for found in executor.map(partial(_draw, task), range(len(maker.reader.shards))):
            cells.update(found)
        list(executor.map(partial(_measure, task), [cells]))
    finally:
        remove_tree(folder / SAMPLE, root=root_of(version, folder))


def _copy_cues_state(version: Version, folder: Path) -> None:
    """Copy the state of ``cues``, if there is one, into the model's folder."""
    known = [entry["name"] for entry in version.manifest["operators"]]
    stored = version.reader().stored_state("cues") if "cues" in known else None
    if stored is not None:
        make_folder(folder / CUES, root=root_of(version, folder))
        copy_state(stored, folder / CUES)


def _draw(task: SampleTask, shard: int) -> Cells:
    """Write the drawn train rows of a shard; return the rows of each class and group. Runs on a worker."""
    data = dataset_of_version(task.version, task.maker, task.params.noise)
    rows = data.train[shard]
    rows = rows.take(np.flatnonzero(rows.weight > 0))
    numbers = numbers_of(rows, data.group_names)
    drawn = np.flatnonzero(row_hashes(rows.row_id, task.seed, "retrain/strength") <= np.uint64(task.last))
    if len(drawn):
        file, root = sample_file(task.folder / SAMPLE, shard), root_of(task.version, task.folder)
        write_sample(file, rows.take(drawn), numbers[drawn], root=root)
    return Counter(zip(rows.y.tolist(), numbers.tolist(), strict=True))


def _measure(task: SampleTask, cells: Cells) -> None:
    """Measure the curve on the drawn rows, choose, and write the record. Runs on a worker."""
    from operators.cues.models.curve_points import choose
    from operators.threads import limit_threads

    rows, numbers = _read_sample(task)
    classes = [str(value) for value in task.maker.classes]
    counts = np.zeros(len(classes), np.int64)
    for (c, _), n in cells.items():
        counts[c] += n
    record: dict[str, Any] = {"max_mean_loss": max_mean_loss_of(task.params)}
    with limit_threads(1):  # the same bytes, however many cores there are
        record |= _curve(task, rows, numbers, counts, cells, classes)
    points = record.pop("points")
    chosen = points[choose(points, record["max_mean_loss"])]
    root = root_of(task.version, task.folder)
    write_json(task.folder / RECORD, record | {"strength": chosen.strength}, root=root)


def _read_sample(task: SampleTask) -> tuple[GroupedRows, Int64]:
    """Return the drawn rows in the order of their ids, and their published groups."""
    files = sorted((task.folder / SAMPLE).glob("*.npz"), key=lambda file: int(file.stem))
    if not files:
        raise InputError(
            "max_mean_loss: there are no train rows to measure the strength of weighting on. Lower "
            "split.validation and split.test in the recipe, or leave max_mean_loss out."
        )
    sample = read_samples(files)
    n, order = len(sample.y), np.argsort(sample.ids, kind="stable")
    rows = GroupedRows(sample.X, sample.y, np.ones(n), np.full(n, NO_GROUP), sample.ids)
    return rows.take(order), sample.groups[order]


def _curve(
    task: SampleTask, rows: GroupedRows, numbers: Int64, counts: Int64, cells: Cells, classes: list[str]
) -> dict[str, Any]:
    """Return the record without the choice, and the points."""
    from operators.cues.models.linear import Scaler
    from operators.cues.models.trade_off import rows_by_group, trade_off
    from operators.cues.models.weight_path import WeightPath, has_factor
    from operators.cues.output.curve_report import curve_record

    end: dict[str, Any] = {"end": "groups", "cells": _balance(cells, counts)}
    cap, share = CAP, MIN_EFFECTIVE
    if (task.folder / CUES).exists():
        end = {"end": "cues"}
        given = next(e["params"] for e in task.version.manifest["operators"] if e["name"] == "cues")
        cap, share = given.get("cap", CAP), given.get("min_effective_share", MIN_EFFECTIVE)
    opened = Factor.open(task.folder, end)
    factor, state = opened(rows, numbers), opened.state
    if state is not None and state.least_share is not None:
        share = state.least_share
    path = WeightPath.fit(factor, rows.y, counts, cap=cap, min_effective=share)
    no_evidence = state is not None and state.blend <= 0 and state.slice_blend <= 0
    groups = rows.y if no_evidence or _are_classes(numbers, rows.y) else numbers
    Z = Scaler.from_rows(rows.X).apply(rows.X)
    labels = opened.right_label(rows)
    try:
        points = trade_off(Z, rows.y, rows.row_id, path, factor, groups, seed=task.seed, right_label=labels)
    except ValueError as error:
        raise InputError(
            f"max_mean_loss: the strength of weighting cannot be measured: {error}. Leave max_mean_loss out."
        ) from None
    if not has_factor(factor, rows.y):
        end["end"] = "class balance"
    by_class = groups is rows.y

    def name(group: int) -> str:
        if by_class:
            return f"class {classes[group]}"
        return f"rows without a group, class {classes[-1 - group]}" if group < 0 else f"group {group}"

    kind = "classes" if by_class else "groups"
    record = curve_record(points, rows_by_group(groups, labels), name, grouping=kind, rows=len(rows))
    limits = path.limits
    kept = {"counts": counts.tolist(), "mean": limits.mean.tolist(), "trust": limits.trust.tolist()}
    return {**end, "trade_off": record, "path": kept | {"cap": limits.cap}, "points": points}


def _are_classes(numbers: Int64, y: Int64) -> bool:
    """Return whether every class is one group, and every group one class."""
    pairs = len(np.unique(np.column_stack([numbers, y]), axis=0))
    return pairs == len(np.unique(numbers)) == len(np.unique(y))


def _balance(cells: Cells, counts: Int64) -> list[tuple[int, int, float]]:
    """Return the factor n_c / (k_c n_cg) of each class and group: a class's groups then weigh the same."""
    groups = Counter(c for c, _ in cells)
    return [(c, g, float(counts[c] / (groups[c] * n))) for (c, g), n in sorted(cells.items())]
