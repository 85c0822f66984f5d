"""The operator ``parts``: what it counts is what it publishes, beside rows that ``source.holdout`` takes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from engine.execution.local_executor import LocalExecutor
from operators.base import PART, ROW_ID, Context, DatasetDelta
from operators.parts.adaptor import NAMES, RowParts
from operators.parts.params import DrawParams, HoldoutParams, PartsParams
from operators.parts.small_classes import STATE, Classes
from tests.unit.in_memory import MemoryReader, split_table

N = 4000


def drawn(
    folder: Path, holdout: float, values: npt.NDArray[np.float64], *, n_rare: int = 15
) -> tuple[npt.NDArray[np.int8], dict[str, float], str]:
    """The parts of all rows, the metrics, and what identifies rows; the first rows are of a rare class."""
    labels = np.where(np.arange(N) % 2, "a", "b").astype(object)
    labels[:n_rare] = "rare"
    table = pa.table({"f": values, "label": pa.array(labels.tolist())})
    held = HoldoutParams(share=holdout) if holdout else None
    draw = DrawParams(validation=0.2, test=0.0)
    operator = RowParts(PartsParams(label="label", features=("f",), holdout=held, draw=draw))
    reader = MemoryReader(split_table(table, [1500]))
    context = Context(reader, folder, {}, 7)
    metrics = operator.fit(context, LocalExecutor())
    apply = operator.open(context)
    found = [apply(reader.read_source(i, [ROW_ID, *operator.source_columns])) for i in range(2)]
    by = json.loads((folder / STATE).read_text())["by"]
    return pa.concat_tables(found)[PART].to_numpy(), metrics, by


@pytest.mark.parametrize("holdout", [0.0, 0.1, 0.4])
def test_counted_rows_are_the_published_ones(tmp_path: Path, holdout: float) -> None:
    parts, metrics, _ = drawn(tmp_path, holdout, np.random.default_rng(0).normal(size=N))
    assert metrics == dict(zip(NAMES, np.bincount(parts, minlength=3).tolist(), strict=True))
    # A rare class is not drawn from, and `holdout` does not look at classes.
    assert set(parts[:15]) == ({0, 2} if holdout else {0})


def test_held_out_rows_do_not_make_the_draw_look_lumpy(tmp_path: Path) -> None:
    parts, _, by = drawn(tmp_path, 0.55, np.random.default_rng(0).normal(size=N))
    assert by == "content"
    left = parts[parts != 2]
    assert (left == 1).mean() == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("holdout", [0.0, 0.55])
def test_equal_rows_that_would_miss_the_shares_are_drawn_by_position(tmp_path: Path, holdout: float) -> None:
    parts, _, by = drawn(tmp_path, holdout, np.zeros(N))
    assert by == "position"
    left = parts[parts != 2]
    assert (left == 1).mean() == pytest.approx(0.2, abs=0.03)


def grown(n_first: int, n_more: int) -> pa.Table:
    """Rows of two classes, of which the second, in the first and the last rows, has so many."""
    n = 400
    values = np.random.default_rng(0).normal(size=n_first + n + n_more)
    return pa.table({"f": values, "label": ["rare"] * n_first + ["a"] * n + ["rare"] * n_more})


@pytest.mark.parametrize(("n_more", "is_drawn"), [(3, False), (200, True)])
@pytest.mark.parametrize("removed", [False, True])
def test_a_class_that_has_grown_is_drawn_from_and_no_old_row_moves(
    tmp_path: Path, n_more: int, is_drawn: bool, removed: bool
) -> None:
    table = grown(15, n_more)
    operator = RowParts(
        PartsParams(label="label", features=("f",), draw=DrawParams(validation=0.4, test=0.1))
    )
    states = [tmp_path / "old", tmp_path / "new"]
    for state in states:
        state.mkdir()
    old, both = MemoryReader([table[:415]]), MemoryReader([table[:415], table[415:]])
    metrics = operator.fit(Context(old, states[0], {}, 7), LocalExecutor())
    delta = DatasetDelta(states[0], metrics, (1,), removed)
    context = Context(both, states[1], {}, 7)
    metrics = operator.partial_fit(context, delta, LocalExecutor())
    apply = operator.open(context)
    before = operator.open(Context(old, states[0], {}, 7))
    first, more = (both.read_source(i, [ROW_ID, *operator.source_columns]) for i in range(2))
    parts = [apply(first)[PART].to_numpy(), apply(more)[PART].to_numpy()]
    assert parts[0].tolist() == before(first)[PART].to_pylist()
    assert not parts[0][:15].any()
    assert bool(parts[1].any()) == is_drawn
    assert metrics == dict(zip(NAMES, np.bincount(np.concatenate(parts), minlength=3).tolist(), strict=True))
    assert Classes.load(states[1]).kept.size < 15
