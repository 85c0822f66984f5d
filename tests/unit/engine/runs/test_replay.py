"""Exports of quarantined rows: no spreadsheet computes a value of the source."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.core.errors import InputError
from engine.execution.quarantine import SCHEMA, read_records
from engine.runs.replay import export_rows

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "-", "+1.5.2", "-1\n=2"]
FORMULAS += [
    "\n=1",
    "\r\n@x",
    "\n",
    "＝1+1",
    "＋1",
    "－1+1",
    "＠SUM(A1)",
    " =1+1",
    "\u00a0=1",
    "\ufeff=1",
    "\u200b\t＝1",
]
TEXTS = ["a=b", "", "'=1", " text", "-1.5", "+7", "-2e-9", "1-2", '{"a": "=1"}', "é"]


def table() -> pa.Table:
    rows = [
        {"row_id": -place, "row": place, "value": text, "raw": text, "file": "=evil.csv", "column": None}
        for place, text in enumerate(FORMULAS + TEXTS)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_no_text_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    export_rows(table(), tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as handle:
        found = list(csv.DictReader(handle))
    for name in ("value", "raw"):
        assert [row[name] for row in found] == [f"'{text}" for text in FORMULAS] + TEXTS
    assert {row["file"] for row in found} == {"'=evil.csv"}
    assert {row["column"] for row in found} == {""}
    assert [int(row["row_id"]) for row in found] == [-place for place in range(len(FORMULAS + TEXTS))]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_other_formats_hold_the_texts_as_they_are(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"x.{suffix}"
    export_rows(table(), file)
    if suffix == "parquet":
        assert pq.read_table(file).equals(table())
        return
    lines = file.read_text("utf-8").split("\n")[:-1]
    assert [json.loads(line) for line in lines] == table().to_pylist()


def _other(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    return lambda file: pq.write_table(change(table()), file)


FORGED: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,  # opening it would wait for ever
    "link": lambda file: file.symlink_to("/etc/hostname"),
    "torn": lambda file: file.write_bytes(b"PAR1junkPAR1"),
    "column": _other(lambda found: found.append_column("=1", found["raw"])),
    "no column": _other(lambda found: found.drop_columns("raw")),
    "lists": _other(lambda found: found.set_column(1, "file", pa.array([["=1"]] * len(found)))),
    "dictionary": _other(lambda found: found.set_column(5, "value", found["value"].dictionary_encode())),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_file_of_quarantined_rows_is_named(forgery: str, tmp_path: Path) -> None:
    """A column of another type would also pass by what keeps formulas out of a CSV."""
    file = tmp_path / "quarantine-00000.parquet"
    FORGED[forgery](file)
    with pytest.raises(InputError, match=r"quarantine-00000\.parquet holds no quarantined rows of a run"):
        read_records(file)
    file.unlink()
    pq.write_table(table(), file)
    assert read_records(file).equals(table())
