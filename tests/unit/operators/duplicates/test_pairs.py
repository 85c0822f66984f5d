"""Files of pairs: few after any number of increments, with the same pairs."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.execution.local_executor import LocalExecutor
from operators.base import Context, DatasetDelta, OperatorError, ShardInfo
from operators.duplicates import pairs
from operators.duplicates.adaptor import DuplicatesOperator
from operators.duplicates.pairs import StoredPairs, join_shards, write_pairs
from operators.duplicates.params import DuplicatesParams
from operators.duplicates.runs import Run
from tests.benchmarks.duplicates import TextShards
from tests.unit.operators.duplicates.on_texts import find_duplicates
from tests.unit.operators.duplicates.test_minhash import texts

pytest.importorskip("rensa", reason="needs rensa, of rowsieve[duplicates]")
NIGHTS = 12


def test_many_increments_of_texts_leave_few_files(tmp_path: Path) -> None:
    given = texts(NIGHTS * 40)
    infos = []
    for night in range(NIGHTS):
        pq.write_table(pa.table({"text": given[40 * night : 40 * night + 40]}), tmp_path / f"{night}.parquet")
        infos.append(ShardInfo(night, f"{night}.parquet", 40 * night, 40, 0))
    operator, executor = DuplicatesOperator(DuplicatesParams(columns=("text",))), LocalExecutor()
    state = tmp_path / "state-0"
    state.mkdir()
    metrics = operator.fit(Context(TextShards(tmp_path, tuple(infos[:1])), state), executor)
    for night in range(1, NIGHTS):
        before, state = state, tmp_path / f"state-{night}"
        state.mkdir()
        delta = DatasetDelta(before, metrics, (night,), rows_removed=False)
        reader = TextShards(tmp_path, tuple(infos[: night + 1]))
        metrics = operator.partial_fit(Context(reader, state), delta, executor)
    found, expected = StoredPairs(state).of_rows(np.arange(len(given))), find_duplicates(given)
    assert found.of.tolist() == expected.of.tolist()
    assert found.similarity.tolist() == expected.similarity.tolist()
    n_found = int((expected.of >= 0).sum())
    assert metrics == {"compared": len(given), "duplicates": n_found}
    assert n_found > 60
    left = [path.name for path in state.iterdir() if not path.name.startswith("texts-")]
    assert all(name.startswith("pairs-") for name in left)
    assert len(left) <= np.log2(NIGHTS) + 1


def test_the_pairs_of_a_shard_are_found_without_those_of_others(tmp_path: Path) -> None:
    """Reading all pairs for each shard takes time that grows with the square of the rows, and the memory."""
    rows = np.arange(1, 1_000_001)
    write_pairs(tmp_path, 0, rows, rows - 1, np.ones(len(rows), np.float32))
    stored = StoredPairs(tmp_path)
    stored.of_rows(np.arange(3))
    tracemalloc.start()
    found = stored.of_rows(np.arange(500_000, 500_100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.of.tolist() == list(range(499_999, 500_099))
    assert peak < 1_000_000


@pytest.mark.parametrize(
    "content",
    [np.empty(0), np.zeros(3), np.zeros((2, 2), pairs.PAIR), np.zeros(1, pairs.PAIR[["row", "of"]])],
)
def test_a_forged_file_of_pairs_is_named(content: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "pairs-000000000000000-000000000000000-3.npy", content)
    with pytest.raises(OperatorError, match=r"pairs-\d+-\d+-3\.npy holds no pairs of rows"):
        StoredPairs(tmp_path).of_rows(np.arange(3))


def test_files_of_pairs_are_joined_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "LARGEST", 100)
    rows = np.arange(1, 301)
    for first in range(0, 300, 30):
        some = rows[first : first + 30]
        assert write_pairs(tmp_path, first, some, some - 1, np.ones(30, np.float32)) == 30
        join_shards(tmp_path)
    kept = sorted(map(Run.of, tmp_path.glob("pairs-*")))
    assert [run.rows for run in kept] == [60] * 5
    assert StoredPairs(tmp_path).of_rows(rows).of.tolist() == (rows - 1).tolist()
    assert write_pairs(tmp_path, 400, rows[:0], rows[:0], np.ones(0, np.float32)) == 0
