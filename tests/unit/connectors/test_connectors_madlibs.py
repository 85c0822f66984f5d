"""The text recipe's data: how many of which kind, from any file with the original's columns."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pv
import pytest

from connectors.base import ConnectorError
from connectors.madlibs import ROWS, make_madlibs, write_madlibs


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A file like the original: every text says its line."""
    kinds = [kind for kind in [*ROWS, ("BAD", "verb_adj")] for _ in range(800)]
    texts = [f"line {number}" for number in range(2, len(kinds) + 2)]
    labels, templates = zip(*kinds, strict=True)
    pv.write_csv(pa.table({"Text": texts, "Label": labels, "Template": templates}), tmp_path / "original.csv")
    return tmp_path / "original.csv"


def test_rows_are_drawn_once_and_keep_what_they_were(original: Path) -> None:
    table = make_madlibs(original)
    source = pv.read_csv(original).to_pylist()
    rows = table.to_pylist()
    assert Counter(row["true_group"] for row in rows) == {"/".join(kind): n for kind, n in ROWS.items()}
    assert len({row["line"] for row in rows}) == len(rows)
    for row in rows:
        taken = source[row["line"] - 2]
        assert row["text"] == taken["Text"] == f"line {row['line']}"
        assert (row["label"], row["true_group"]) == (taken["Label"], f"{taken['Label']}/{taken['Template']}")


def test_the_seed_decides(original: Path, tmp_path: Path) -> None:
    assert make_madlibs(original, seed=1).equals(make_madlibs(original, seed=1))
    assert not make_madlibs(original, seed=1).equals(make_madlibs(original, seed=2))
    command = [
        sys.executable,
        "-m",
        "connectors.madlibs",
        str(original),
        str(tmp_path / "out"),
        "--shards",
        "3",
    ]
    subprocess.run(command, check=True, capture_output=True)
    again = write_madlibs(original, tmp_path / "again", shards=3)
    assert [path.read_bytes() for path in sorted((tmp_path / "out").iterdir())] == [
        p.read_bytes() for p in again
    ]


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="not a CSV with the columns Text, Label and Template"):
        make_madlibs(tmp_path / "gone.csv")
    (tmp_path / "a.csv").write_text("Text,Label,Template\nx,BAD,being_adj\n")
    with pytest.raises(ConnectorError, match="has 1 rows of BAD/being_adj, and 760 are needed"):
        make_madlibs(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("Text\nx\n")
    with pytest.raises(ConnectorError, match="not a CSV with the columns"):
        make_madlibs(tmp_path / "b.csv")
