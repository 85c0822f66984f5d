"""The run store: nothing counts before its record, nothing is half-written."""

from pathlib import Path

import pyarrow as pa
import pytest

from engine.core.json_files import write_json
from engine.storage.run_store import RunStore

TABLE = pa.table({"a": pa.array([1, 2, 3], pa.int32())})


def test_a_part_counts_only_with_its_record(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.commit("f", 0, TABLE, seconds=1.0)
    store.commit("f", 2, TABLE, seconds=1.0, quarantined=1)
    store.part("f", 2).with_suffix(".json").unlink()
    assert set(store.committed("f")) == {0}
    assert store.committed("f")[0].rows == 3
    assert store.committed("other") == {}


def test_a_state_appears_only_when_its_block_ends_well(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with pytest.raises(RuntimeError), store.fitting("f") as scratch:  # noqa: PT012
        (scratch / "half").touch()
        raise RuntimeError
    assert not store.state("f").exists()
    assert list(store.folder("f").iterdir()) == []
    with store.fitting("f") as scratch:
        (scratch / "whole").touch()
    assert (store.state("f") / "whole").exists()
    assert store.fitted("f") is None
    store.commit_fit("f", {"loss": 0.5}, 1.0)
    assert store.fitted("f") == {"metrics": {"loss": 0.5}, "seconds": 1.0}


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert list(tmp_path.iterdir()) == [path]
