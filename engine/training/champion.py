"""The champion on the rows of a newer version, and the paired comparison of a challenger with it.

A champion may have been trained on other columns, in another order, with another encoder or on other classes
than a version has now. Two models are compared by their numbers of features only where they read the same
things; otherwise the champion answers through its own serving function, from published source columns.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.foundation.messages import shorten
from engine.core.json_files import read_json
from engine.recipe.objectives import CROSS_ENTROPY
from engine.recipe.promotion import ACCURACY, WORST, CannotCompareError, TestResult
from engine.training.data.rows import GroupedRows
from engine.training.evaluation.by_group import INFERRED, MORE_ROWS, by_class, group_label
from engine.training.evaluation.split_scores import GroupFacts, RowSource, row_pieces, truth_of
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.job import TrainingJob
from engine.training.serving.pyfunc import ENCODING, SERVING, ServedModel, describe_features
from operators.arrays import Int64
from operators.base import Executor
from operators.metrics.group_scores import (
    MAX_NAMES,
    NEARLY_ALL_WRONG,
    few_rows_text,
    group_name,
    pool_groups,
    pooled_name,
    wrong_labels_text,
)
from operators.metrics.paired import PairedCounts, gain_p_value

CELLS = ("rows", "right_before", "gained", "lost")
MODELS = ("the champion", "the challenger")
UNKNOWN = -1
"""Class index of a label that the champion does not know, and of rows that it cannot read: always wrong."""


@dataclass(frozen=True)
class OwnFeatures(RowSource):
    """Rows with the features and class indices of another model, made by its serving function. Picklable."""

    folder: Path
    """Holds the other model's ensemble and ``serving.json``."""

    @cached_property
    def served(self) -> ServedModel:
        """The other model's serving function."""
        return ServedModel(self.folder)

    def __call__(self, job: TrainingJob, rows: GroupedRows, shard: int) -> GroupedRows:
        """Return the rows as the other model sees them."""
        record = read_json(self.folder / SERVING)
        reader, label = job.version.reader(), str(job.version.manifest["source"]["label"])
        published = {str(field["name"]) for field in job.version.manifest["schema"]}
        names = [name for name in record["features"] if name in published]
        table = reader.read_source(shard, [*names, label])
        table = table.take(pa.array(rows.row_id - reader.shards[shard].first_row))
        places = {value: index for index, value in enumerate(record["classes"])}
        y = np.array([places.get(value, UNKNOWN) for value in table[label].to_pylist()], np.int64)
        features, reasons = self.served.features(table.drop_columns([label]))
        usable = np.array([reason is None for reason in reasons], bool)
        X = np.zeros((len(rows), self.served.model.spec.n_features), np.float32)
        X[usable] = features
        return replace(rows, X=X, y=np.where(usable, y, UNKNOWN))

    def places(self, job: TrainingJob) -> Int64:
        """Return the other model's index of each class of the job (C,)."""
        own = {value: index for index, value in enumerate(read_json(self.folder / SERVING)["classes"])}
        return np.array([own.get(value, UNKNOWN) for value in job.maker.classes], np.int64)


def _features_of(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return all that decides the features and classes of a model: its record and the state of `encode`."""
    record = read_json(folder / SERVING)
    state = sorted(path for path in (folder / ENCODING).rglob("*") if path.is_file())
    files = {str(path.relative_to(folder)): path.read_bytes() for path in state}
    return {key: value for key, value in record.items() if key != "version"}, files


def rows_for(folder: Path, job: TrainingJob) -> RowSource | None:
    """Return how the model in a folder sees the rows of a job; None if as the job's own models do.

    Raises CannotCompareError if it reads a column that the version does not publish, knows none of its
    classes, predicts something else, or, of a regression, another property of the target, such as a quantile.
    """
    target = job.params.target
    theirs = read_json(folder / SERVING).get("target")
    if theirs != target:
        answers = ["classes" if name is None else f"the number {name!r}" for name in (theirs, target)]
        raise CannotCompareError(f"it predicts {answers[0]}, and the challenger {answers[1]}")
    if target is not None and (trained := objective_of_model(folder)) != job.params.objective:
        raise CannotCompareError(
            f"it was trained by the objective {trained}, and the challenger by {job.params.objective}"
        )
    with tempfile.TemporaryDirectory() as scratch:
        describe_features(job.version, job.maker, Path(scratch), target)
        if _features_of(Path(scratch)) == _features_of(folder):
            return None
        classes = read_json(Path(scratch) / SERVING)["classes"]
    if target is not None:
        raise CannotCompareError("it reads other columns or another encoder, and it predicts numbers")
    published = {str(field["name"]) for field in job.version.manifest["schema"]}
    missing = [name for name in ServedModel(folder).names if name not in published]
    if missing:
        raise CannotCompareError(
            f"it reads the column {missing[0]!r}, which version {job.version.name} does not publish"
        )
    known = read_json(folder / SERVING)["classes"]
    if not set(known).intersection(classes):
        raise CannotCompareError(
            f"it knows the classes {shorten(known)}, and version {job.version.name} has none of them, but "
            f"{shorten(classes)}"
        )
    return OwnFeatures(folder)


def objective_of_model(folder: Path) -> str:
    """Return the objective that the model in a folder was trained by."""
    params = Ensemble.load(folder).about.get("params")
    return str(params.get("objective", CROSS_ENTROPY)) if isinstance(params, dict) else CROSS_ENTROPY


@dataclass(frozen=True)
class PairedAnswers:
    """Counts of rows by group and by the answers of champion and challenger; a ``PairedTest``."""

    groupings: Mapping[str, Mapping[Any, PairedCell]]
    wrong_labels: Mapping[int, float] = field(default_factory=dict)
    """Estimated share of wrong labels in inferred groups: where nearly all are, a group is not compared."""

    def __call__(self, metric: str, bound: float, confidence: float) -> TestResult:
        """Test whether the challenger exceeds the champion by more than ``bound``."""
        if metric == ACCURACY:
            return _finding(self.all_rows(), ["all rows"], bound, confidence)
        name = metric.removesuffix(WORST).rstrip("_") or INFERRED
        found = _finding(self.counts(name), self.names(name), bound, confidence)
        cells = {group_label(name, group): cell for group, cell in self._compared(name).items()}
        right = {
            group: f"{cell.right_before} right by the champion and "
            f"{cell.right_before + cell.gained - cell.lost} by the challenger"
            for group, cell in cells.items()
        }
        rows = {group: cell.rows for group, cell in cells.items()}
        present = self.groupings[name] if name == INFERRED else ()
        wrong = {group_label(name, g): share for g, share in self.wrong_labels.items() if g in present}
        notes = [few_rows_text(rows, details=right, remedy=MORE_ROWS), wrong_labels_text(wrong)]
        return replace(found, text="; ".join([found.text, *filter(None, notes)]))

    def all_rows(self) -> PairedCounts:
        """Counts of all rows as one group, those of small groups included."""
        cells = self.groupings[INFERRED].values()
        return PairedCounts(*(np.array([sum(getattr(c, key) for c in cells)], np.int64) for key in CELLS))

    def counts(self, grouping: str) -> PairedCounts:
        """Counts of the groups that are compared; small ones are pooled or left out as in every score."""
        cells, entries = self.groupings[grouping], self._entries(grouping)
        sums = [[sum(getattr(cells[m], key) for m in members) for members in entries] for key in CELLS]
        return PairedCounts(*(np.array(column, np.int64) for column in sums))

    def names(self, grouping: str) -> list[str]:
        """Names of the groups of :meth:`counts`."""
        entries = self._entries(grouping)
        whole = len(entries) == 1 and len(entries[0]) == len(self._compared(grouping)) > 1
        labels = [[group_label(grouping, member) for member in members] for members in entries]
        named = [pooled_name(found) for found in labels]
        return ["all groups together"] if whole else [group_name(name) for name in named]

    def _entries(self, grouping: str) -> list[tuple[Any, ...]]:
        return pool_groups({name: cell.rows for name, cell in self._compared(grouping).items()})

    def _compared(self, grouping: str) -> dict[Any, PairedCell]:
        """Return the groups that a test may compare: all, but for those in which nearly all labels are wrong.

        Where these have all rows, they are compared as well.
        """
        wrong = self.wrong_labels if grouping == INFERRED else {}
        cells = self.groupings[grouping]
        kept = {name: cell for name, cell in cells.items() if wrong.get(name, 0.0) <= NEARLY_ALL_WRONG}
        return kept if any(cell.rows for cell in kept.values()) else dict(cells)


@dataclass(frozen=True)
class PairedCell:
    """Rows of one group; see :class:`operators.metrics.paired.PairedCounts`."""

    rows: int
    right_before: int
    gained: int
    lost: int


def _finding(counts: PairedCounts, names: Sequence[str], bound: float, confidence: float) -> TestResult:
    """Return the outcome of the test, with its name and the counts of each group that it is made from."""
    beside = _counts_text(counts, names)
    p = gain_p_value(counts, bound)
    several = "an intersection-union test of the worst group's gain"
    single = "Tango's score test of the gain" if bound else "McNemar's exact test"
    test = (several if len(names) > 1 else single) + (f" above {bound:+g}" if bound else "")
    return TestResult(p <= 1 - confidence, f"p = {p:.4f} by {test}, one-sided, in {beside}")


def _counts_text(counts: PairedCounts, names: Sequence[str]) -> str:
    """Describe each group by its answers: the champion's worst, the challenger's worst, then the rest."""
    before, after = counts.right_before, counts.both + counts.gained
    shares = np.stack([before, after]) / counts.rows
    worst = dict.fromkeys(int(place) for place in shares.argmin(axis=1))
    rest = [int(g) for g in np.argsort(shares.min(axis=0), kind="stable") if int(g) not in worst]
    told = []
    for g in [*worst, *rest][:MAX_NAMES]:
        roles = [who for who, place in zip(MODELS, shares.argmin(axis=1), strict=True) if place == g]
        role = f", the worst of {' and '.join(roles)}" if len(names) > 1 and roles else ""
        told.append(
            f"{names[g]}{role}: of {counts.rows[g]} rows the champion has {before[g]} right and the "
            f"challenger {after[g]}, {counts.gained[g]} gained and {counts.lost[g]} lost"
        )
    more = len(names) - len(told)
    text = "; ".join(told) + (f"; and {more} more" if more else "")
    return text if len(names) == 1 else f"{len(names)} groups ({text})"


def count_paired_answers(
    job: TrainingJob,
    folder: Path,
    champion: Path,
    executor: Executor,
    groups: GroupFacts,
    *,
    split: str,
    source: RowSource | None = None,
    truth: str | None = None,
) -> PairedAnswers | None:
    """Count the rows of a split by the answers of the model in ``folder`` and of the champion.

    None for a regression, whose answers are neither right nor wrong.
    """
    if job.params.task == "regression":
        return None
    work = partial(_pair_shards, job, folder, champion, source, split, truth)
    total: dict[str, Counter[tuple[Any, str]]] = {}
    for found in executor.map(work, row_pieces(job)):
        for name, counts in found.items():
            total.setdefault(name, Counter()).update(counts)
    groupings = {
        name: {
            group: PairedCell(*(counts[group, key] for key in CELLS))
            for group in dict.fromkeys(group for group, _ in counts)
        }
        for name, counts in total.items()
    }
    return PairedAnswers(groupings, groups.wrong_labels)


def _pair_shards(
    job: TrainingJob,
    folder: Path,
    champion: Path,
    source: RowSource | None,
    split: str,
    truth: str | None,
    shards: Sequence[int],
) -> dict[str, Counter[tuple[Any, str]]]:
    """Count the rows of some shards. Runs on a worker."""
    new, old = Ensemble.load(folder), Ensemble.load(champion)
    data = job.dataset()
    names = np.array([*data.group_names, -1])
    total: dict[str, Counter[tuple[Any, str]]] = {}
    for shard in shards:
        rows = data.splits[split][shard]
        if not len(rows):
            continue
        seen = rows if source is None else source(job, rows, shard)
        right_new = new.predict(rows.X) == rows.y
        right_old = old.predict(seen.X) == seen.y
        groupings: dict[str, npt.NDArray[Any]] = {INFERRED: by_class(names[rows.group], rows.y)}
        if truth:
            groupings["true"] = truth_of(job, truth, shard, rows.row_id)
        values = (np.ones(len(rows), bool), right_old, right_new & ~right_old, right_old & ~right_new)
        for name, groups in groupings.items():
            kinds, place = np.unique(groups, return_inverse=True)
            counts = total.setdefault(name, Counter())
            for key, mask in zip(CELLS, values, strict=True):
                sums = np.bincount(place, mask, minlength=len(kinds)).astype(int).tolist()
                counts.update({(group, key): n for group, n in zip(kinds.tolist(), sums, strict=True)})
    return total
