"""Logs of Delta whose JSON has tens of thousands of levels, which the library follows by recursion."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.base import ConnectorError
from connectors.registry import open_source
from connectors.tables.delta_log import check_log

deltalake = pytest.importorskip("deltalake")
LEVELS = 100_000
REFUSED = r"_delta_log/.*, a file of the table's log, has JSON of more than 100 levels"


def nested(levels: int, *, misleading: bool = False) -> str:
    """Return JSON of many levels; a bracket in each name may seem to close one."""
    return ('{"}":' if misleading else '{"a":') * levels + "1" + "}" * levels


def table(folder: Path) -> Path:
    """Write a table of one column and return the file of its first commit."""
    deltalake.write_deltalake(str(folder), pa.table({"a": [1, 2]}))
    return folder / "_delta_log" / f"{0:020}.json"


def add_statistics(commit: Path, statistics: str) -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in commit.read_text().splitlines()]
    next(line for line in lines if "add" in line)["add"]["stats"] = statistics
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("misleading", [False, True])
@pytest.mark.parametrize("place", ["statistics", "escaped", "twice", "action"])
def test_many_levels_of_json_do_not_end_the_process(place: str, misleading: bool, tmp_path: Path) -> None:
    commit, deep = table(tmp_path / "t"), nested(LEVELS, misleading=misleading)
    if place != "action":
        add_statistics(commit, '{"numRecords":2,"minValues":' + deep + "}")
        text = commit.read_text()
        if place == "escaped":
            text = text.replace('{\\"', '\\u007B\\"')
            assert text.count("{") < 100
        if place == "twice":
            text = text.replace('"size"', '"stats": "{}", "size"')
        commit.write_text(text)
    else:
        with commit.open("a") as file:
            file.write('{"add":{"path":"b.parquet","partitionValues":{},"size":1,"tags":' + deep + "}}\n")
    code = "import sys; from connectors.registry import open_source; open_source(sys.argv[1]).list()"
    command = [sys.executable, "-c", code, str(tmp_path / "t")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # it may end that process
    assert done.returncode == 1
    assert "has JSON of more than 100 levels" in done.stderr


def test_statistics_of_a_checkpoint_count_too(tmp_path: Path) -> None:
    commit = table(tmp_path / "t")
    deltalake.DeltaTable(str(tmp_path / "t")).create_checkpoint()
    checkpoint = commit.with_name(f"{0:020}.checkpoint.parquet")
    check_log(str(tmp_path / "t"))
    rows = pq.read_table(checkpoint)
    adds = [value and {**value, "stats": nested(LEVELS)} for value in rows["add"].to_pylist()]
    place = rows.schema.get_field_index("add")
    pq.write_table(rows.set_column(place, "add", pa.array(adds, rows.schema.field("add").type)), checkpoint)
    with pytest.raises(ConnectorError, match=REFUSED):
        open_source(str(tmp_path / "t")).list()


def test_many_brackets_of_few_levels_are_read(tmp_path: Path) -> None:
    commit = table(tmp_path / "t")
    many = json.dumps({"numRecords": 2, "nullCount": {f"c{i}": {"x": 0} for i in range(6000)}})
    add_statistics(commit, many)
    listing = open_source(str(tmp_path / "t")).list()
    assert sum(shard.n_rows for shard in listing.shards) == 2
