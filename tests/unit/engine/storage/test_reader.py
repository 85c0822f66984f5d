"""The reader of operators: rows that an operator has set aside are read by none after it."""

from pathlib import Path
from typing import cast

import pyarrow as pa

from connectors.base import Source
from engine.storage.reader import StoreReader
from engine.storage.run_store import RunStore
from operators.base import ROW_ID, VALID, ShardInfo

COLUMNS = pa.table({"a": pa.array([1, 2, 3], pa.int32())})


def test_a_mask_that_a_sidecar_did_not_have_when_it_was_read_first_counts(tmp_path: Path) -> None:
    """A process remembers which sidecars have no mask, and the second one here is another file."""
    store = RunStore(tmp_path / "store")
    shards = (ShardInfo(0, "0.csv", 0, 3, 0),)
    reader = StoreReader(
        source=cast(Source, None),
        source_shards=(),
        schema=pa.schema([]),
        shards=shards,
        store=store,
        columns={"a": "f"},
        validity_sources=("f", "g"),
    )
    store.commit("f", 0, COLUMNS, seconds=1.0)
    assert reader.read_all(0, ["a"])["a"].to_pylist() == [1, 2, 3]
    store.commit("g", 0, pa.table({"b": [1, 2, 3]}), seconds=1.0)
    for _ in range(2):
        assert reader.read_all(0, ["a"])["a"].to_pylist() == [1, 2, 3]
    store.commit("g", 0, pa.table({"b": [1, 2, 3], VALID: [True, False, True]}), seconds=1.0)
    for _ in range(2):
        found = reader.read_all(0, ["a"])
        assert found["a"].to_pylist() == [1, None, 3]
        assert found[ROW_ID].to_pylist() == [0, 1, 2]
