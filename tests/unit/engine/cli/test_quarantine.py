"""``rowsieve quarantine``: what is listed and counted, also where files were renamed, and its options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from engine.runs.replay import _renamed


def table(n_faulty: int, n: int = 100) -> pa.Table:
    """Rows of which the first have no label."""
    labels = [None if row < n_faulty else "pq"[row % 2] for row in range(n)]
    return pa.table({"x": [float(row % 7 + n_faulty) for row in range(n)], "y": labels})


@pytest.fixture
def quarantine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name, n_faulty in (("a", 3), ("b", 2)):
        pq.write_table(table(n_faulty), tmp_path / "data" / f"{name}.parquet")
    recipe: dict[str, Any] = {
        "name": "r",
        "source": {"path": "data", "label": "y", "on_error": "quarantine", "max_error_rate": 0.1},
        "operators": {"groups": {"method": "none"}, "weights": {}, "split": {}},
        "output": {"path": "out"},
        "run": {"executor": "local"},
        "tracking": {"enabled": False},
        "report": {"enabled": False},
    }
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    assert CliRunner().invoke(app, ["run", "r.yaml"]).exit_code == 0
    return lambda *words: CliRunner().invoke(app, ["quarantine", "r.yaml", *words])


def test_a_list_that_is_cut_says_so_and_no_option_is_ignored(quarantine: Any) -> None:
    assert "first" not in quarantine().output
    assert "These are the first 4 rows; --limit shows more." in quarantine("--limit", "4").output
    cut = quarantine("--limit", "4", "--json")
    assert len(json.loads(cut.stdout)) == 4
    assert "These are the first 4 rows" in cut.stderr
    for words in (("list", "--to", "x.csv"), ("export", "--to", "x.csv", "--limit", "3")):
        done = quarantine(*words)
        assert done.exit_code == 2
        assert f"only `{'export' if words[0] == 'list' else 'list'}` takes" in done.stderr
        assert not Path("x.csv").exists()


def test_a_replay_knows_the_rows_of_a_renamed_file(quarantine: Any) -> None:
    """They counted as recovered, and as new ones."""
    pq.write_table(table(0), "data/a.parquet")
    Path("data/b.parquet").rename("data/c.parquet")
    found = json.loads(quarantine("replay", "--json").stdout)
    assert (found["rows"], found["recovered"], found["new"]) == (5, 3, 0)


def test_files_of_one_content_keep_their_names() -> None:
    then = {"a": "1", "b": "1", "c": "2"}
    assert _renamed(then, {"a": "1", "b": "3", "d": "2"}) == {"d": "c"}
    assert _renamed(then, {"b": "1", "e": "1"}) == {"e": "a"}
    assert _renamed(then, {"b": "2", "c": "1"}) == {"b": "c", "c": "b"}
