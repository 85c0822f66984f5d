"""Limits of rows, bytes, depth and time, and the strict defaults, which ``submit`` sets."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from connectors import ConnectorError, open_source
from connectors.policy import SCHEMES, STRICT_SCHEMES, SourcePolicy
from engine.cli.app import app
from engine.core.errors import InputError
from engine.core.policy import STRICT, VARIABLES, Policy, apply_policy, current_policy
from engine.jobs.submission import check_strictly
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.data import small_recipe


@pytest.fixture(autouse=True)
def no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ROWSIEVE_POLICY", *VARIABLES.values()):
        monkeypatch.setenv(variable, "1")  # so that it is restored
        monkeypatch.delenv(variable)


@pytest.mark.parametrize("key", ["rows", "bytes"])
def test_a_source_that_is_too_large_is_refused(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe(tmp_path)
    monkeypatch.setenv(f"ROWSIEVE_MAX_{key.upper()}", "10")
    with pytest.raises(InputError, match=rf"source\.path: the source has [\d,]+ {key}, and 10 are allowed"):
        make_plan(recipe)
    assert not (tmp_path / "out").exists()
    monkeypatch.setenv(f"ROWSIEVE_MAX_{key.upper()}", "10000000")
    make_plan(recipe)


@pytest.mark.parametrize("place", ["", "x.csv.gz", "*.gz"])
def test_a_source_that_is_too_large_is_not_read(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compressed texts were unpacked, to count their rows, before anybody had looked at their size."""
    (tmp_path / "x.csv.gz").write_bytes(b"no gzip, as an error of the reader would say")
    (tmp_path / "y.csv.gz").write_bytes(b"no gzip")
    monkeypatch.setenv("ROWSIEVE_MAX_BYTES", "10")
    with pytest.raises(ConnectorError, match=r"source\.path: the source has \d+ bytes, and 10 are allowed"):
        open_source(str(tmp_path / place)).list()
    monkeypatch.delenv("ROWSIEVE_MAX_BYTES")
    assert SourcePolicy.from_environment().max_bytes is None
    monkeypatch.setenv("ROWSIEVE_STRICT", "1")
    assert SourcePolicy.from_environment().max_bytes == STRICT["max_bytes"]


def test_a_run_that_takes_too_long_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**6, 30))
    monkeypatch.setattr("engine.runs.runner.time.perf_counter", lambda: float(next(clock)))
    monkeypatch.setenv("ROWSIEVE_MAX_SECONDS", "60")
    with pytest.raises(InputError, match=r"longer than the 60 seconds.*ROWSIEVE_MAX_SECONDS"):
        run(small_recipe(tmp_path))
    assert not (tmp_path / "out" / "CURRENT").exists()


@pytest.mark.slow
def test_a_loop_that_reports_nothing_ends_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`groups: {method: kmeans, n_init: 2000000000}` went on for years, as no step told of progress."""
    monkeypatch.setenv("ROWSIEVE_MAX_SECONDS", "3")
    handler = signal.getsignal(signal.SIGALRM)
    groups = {"method": "kmeans", "k": 2, "n_init": 2_000_000_000}
    recipe = small_recipe(tmp_path, operators={"probe": {}, "gradients": {}, "groups": groups, "split": {}})
    start = time.monotonic()
    with pytest.raises(InputError, match=r"longer than the 3 seconds.*ROWSIEVE_MAX_SECONDS"):
        run(recipe)
    assert time.monotonic() - start < 60
    assert signal.getsignal(signal.SIGALRM) is handler


def test_the_longest_limit_of_time_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROWSIEVE_MAX_SECONDS", str(10**18))
    run(small_recipe(tmp_path, shards=1))
    assert "Traceback" not in capfd.readouterr().err


def test_the_depth_of_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.jsonl").write_text('{"y": "a", "v": [[[1]]]}\n')
    assert open_source(str(tmp_path)).list().shards
    monkeypatch.setenv("ROWSIEVE_MAX_JSON_DEPTH", "3")
    with pytest.raises(ConnectorError, match="nested more than 3 deep"):
        open_source(str(tmp_path)).list()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_rows = 0", "max_rows: write a whole number from 1"),
        ("max_json_depth = 100000", "from 1 to 1,000"),
        ("max_seconds = '5'", "max_seconds: write a whole number"),
        ("max_rows = true", "max_rows: write a whole number"),
        ("strict = 1", "strict: write true or false"),
    ],
)
def test_faulty_limits(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.toml").write_text(text)
    monkeypatch.setenv("ROWSIEVE_POLICY", str(tmp_path / "p.toml"))
    with pytest.raises(InputError, match=message):
        current_policy()


@pytest.mark.parametrize("text", ["-1", "1e9", "0", "x", "9" * 30])
def test_faulty_variables(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWSIEVE_MAX_ROWS", text)
    with pytest.raises(InputError, match="ROWSIEVE_MAX_ROWS"):
        current_policy()


def test_strict_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert current_policy() == Policy()
    monkeypatch.setenv("ROWSIEVE_STRICT", "1")
    monkeypatch.setenv("ROWSIEVE_MAX_ROWS", "7")
    found = current_policy()
    assert (found.max_rows, found.max_bytes) == (7, STRICT["max_bytes"])
    assert SourcePolicy.from_environment().schemes == STRICT_SCHEMES
    assert not STRICT_SCHEMES & {"http", "https", "hf", "memory", "postgresql"}
    (tmp_path / "p.toml").write_text("strict = false\nmax_seconds = 5\nmax_json_depth = 20")
    monkeypatch.setenv("ROWSIEVE_POLICY", str(tmp_path / "p.toml"))
    found = apply_policy()
    assert (found.schemes, found.strict, found.max_seconds) == (None, False, 5)
    assert SourcePolicy.from_environment().schemes == SCHEMES
    assert SourcePolicy.from_environment().seconds == 5
    assert SourcePolicy.from_environment().json_depth == 20


def recipe_of(path: str) -> Recipe:
    value: dict[str, Any] = {
        "name": "x",
        "source": {"path": path, "label": "y"},
        "output": {"path": "s3://b/o"},
    }
    return Recipe.parse(value, "r.yaml")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("s3://curated/team-a/churn", True),
        ("s3://curated/team-b/churn", False),
        ("s3://curated/team-a/../team-b/churn", False),
        ("s3://curated/team-a/%2e%2e/team-b/churn", False),
        ("s3://user:secret@curated/team-a/x?endpoint_override=h", True),
        ("s3://team-a/x?x=s3://curated/team-a/x", False),
        ("TMP/team-a/churn", True),
        ("TMP/team-a/../team-b/churn", False),
        ("TMP/team-a/link/churn", False),
        ("file://TMP/team-a/churn", True),
        ("file://TMP/team-b/churn", False),
        ("file://TMP/team-a/%2e%2e/team-b/churn", False),
        ("file://TMP/team-b/churn#/../../team-a/x", False),
        ("file://TMP/team-b/churn?/../../team-a/x", False),
        ("file://TMP/team-b/x%2f..%2f..%2fteam-a%2fx", False),
        ("s3://curated/team-b/../team-a/churn", False),
        ("iceberg:ours.x/../../churn", False),
        ("file:TMP/team-a/churn", False),
        ("abfss://team-a@curated.dfs.core.windows.net/churn", True),
        ("abfss://team-b@curated.dfs.core.windows.net/churn", False),
        ("az://team-a/churn", True),
        ("az://team-b@team-a/churn", False),
    ],
)
def test_a_recipe_writes_to_its_own_place(
    path: str, allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tenant's recipe may not publish into another one's output, nor by an export."""
    (tmp_path / "team-a").mkdir()
    (tmp_path / "team-b").mkdir()
    (tmp_path / "team-a" / "link").symlink_to(tmp_path / "team-b")
    azure = "az://team-a/*,abfss://team-a@curated.dfs.core.windows.net/*"
    places = f"s3://curated/team-a/*,{tmp_path}/team-a/*,{azure},iceberg:ours.*"
    monkeypatch.setenv("ROWSIEVE_OUTPUTS", places)
    named = path.replace("TMP", str(tmp_path))
    value: dict[str, Any] = {"name": "x", "source": {"path": "s3://b/x", "label": "y"}}
    own = f"{tmp_path}/team-a/own"
    for output in ({"path": named}, {"path": own, "export": [{"format": "parquet", "path": named}]}):
        if allowed:
            Recipe.parse(value | {"output": output})
            continue
        with pytest.raises(InputError, match=r"output.*cannot be written to.*ROWSIEVE_OUTPUTS") as raised:
            Recipe.parse(value | {"output": output})
        assert "secret" not in str(raised.value)


def test_a_table_of_a_catalog_is_a_place_to_write_to(monkeypatch: pytest.MonkeyPatch) -> None:
    value: dict[str, Any] = {"name": "x", "source": {"path": "s3://b/x", "label": "y"}}
    export = {"format": "iceberg", "path": "theirs.churn", "catalog": "default"}
    value["output"] = {"path": "s3://b/o", "export": [export]}
    monkeypatch.setenv("ROWSIEVE_OUTPUTS", "s3://b/*,iceberg:ours.*")
    with pytest.raises(
        InputError, match=r"output\.export\.0\.path: iceberg:theirs\.churn cannot be written to"
    ):
        Recipe.parse(value)
    export["path"] = "ours.churn"
    Recipe.parse(value)


@pytest.mark.parametrize("format", ["auto", "iceberg", "parquet"])
def test_no_catalog_hides_a_path_from_the_schemes(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is the name of a table only where the recipe names a catalog of Iceberg."""
    source = {"path": "/etc/x", "label": "y", "format": format, "options": {"catalog": None}}
    value: dict[str, Any] = {"name": "x", "source": source, "output": {"path": "s3://b/o"}}
    monkeypatch.setenv("ROWSIEVE_SCHEMES", "s3")
    with pytest.raises(InputError, match=r"source\.path: the scheme 'file' is not allowed"):
        Recipe.parse(value)
    if format != "iceberg":
        source["options"] = {"catalog": "default"}
        with pytest.raises(InputError, match=r"source\.path: the scheme 'file' is not allowed"):
            Recipe.parse(value)
    value["source"] = {"path": "s3://b/x", "label": "y"}
    value["output"]["export"] = [{"format": "delta", "path": "/tmp/x", "catalog": "default"}]
    with pytest.raises(InputError, match=r"output\.export\.0\.path: the scheme 'file' is not allowed"):
        Recipe.parse(value)


@pytest.mark.parametrize(
    ("warehouse", "allowed"), [("s3://b/ours", True), ("s3://c/x", False), ("main", True)]
)
def test_a_catalog_of_the_recipe_lies_in_a_place_to_write_to(
    warehouse: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = {"type": "rest", "uri": "https://catalog", "warehouse": warehouse}
    export = {"format": "iceberg", "path": "ours.churn", "catalog": catalog}
    value: dict[str, Any] = {"name": "x", "source": {"path": "s3://b/x", "label": "y"}}
    value["output"] = {"path": "s3://b/o", "export": [export]}
    monkeypatch.setenv("ROWSIEVE_OUTPUTS", "s3://b/*,iceberg:ours.*")
    if allowed:
        Recipe.parse(value)
        return
    with pytest.raises(
        InputError, match=r"output\.export\.0\.catalog\.warehouse: s3://c/x cannot be written to"
    ):
        Recipe.parse(value)


@pytest.mark.parametrize(("file", "allowed"), [("team-a/x.db", True), ("team-b/x.db", False)])
def test_the_database_of_a_recipes_own_catalog_is_a_place_to_write_to(
    file: str, allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export adds its table to the database, or makes one; it might be that of another tenant."""
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/{file}", "warehouse": f"{tmp_path}/team-a/lake"}
    export = {"format": "iceberg", "path": "ours.churn", "catalog": catalog}
    value: dict[str, Any] = {"name": "x", "source": {"path": "s3://b/x", "label": "y"}}
    value["output"] = {"path": f"{tmp_path}/team-a/own", "export": [export]}
    monkeypatch.setenv("ROWSIEVE_OUTPUTS", f"{tmp_path}/team-a/*,iceberg:ours.*")
    if allowed:
        Recipe.parse(value)
        return
    with pytest.raises(InputError, match=r"output\.export\.0\.catalog\.uri: .*team-b/x\.db cannot be"):
        Recipe.parse(value)


def test_a_submission_is_checked_strictly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_strictly(recipe_of("s3://bucket/x"))
    recipe = recipe_of("https://example.org/x.csv")
    with pytest.raises(InputError, match=r"x: source\.path: the scheme 'https' is not allowed"):
        check_strictly(recipe)
    assert "ROWSIEVE_STRICT" not in os.environ
    monkeypatch.setenv("ROWSIEVE_SCHEMES", "https,s3")
    check_strictly(recipe)
    monkeypatch.delenv("ROWSIEVE_SCHEMES")
    monkeypatch.setenv("ROWSIEVE_STRICT", "0")
    check_strictly(recipe)


def test_what_holds_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(CliRunner().invoke(app, ["policy", "--json"]).output)
        return found

    assert shown()["schemes"] == {"allowed": sorted(SCHEMES), "from": "default"}
    assert shown()["max_rows"] == {"allowed": None, "from": "default"}
    monkeypatch.setenv("ROWSIEVE_STRICT", "1")
    assert shown()["schemes"] == {"allowed": sorted(STRICT_SCHEMES), "from": "strict"}
    assert shown()["max_rows"] == {"allowed": STRICT["max_rows"], "from": "strict"}
    assert shown()["max_json_depth"] == {"allowed": 100, "from": "default"}
