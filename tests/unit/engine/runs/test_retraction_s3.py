"""Taking a version back where the output lies on S3, by the commands of a user, beside the same on a disk."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner, Result

from connectors.storage import ObjectPath, Place, write_whole
from engine.cli.app import app
from engine.core.output_layout import output_of, version_folder
from engine.publish.withdrawn_models import WITHDRAWN_TAG
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from engine.storage.manifest import pointed_version, published_versions
from engine.storage.withdrawals import current_version
from tests.data import recipe_for, spurious_table
from tests.s3 import SECRET, S3Server

OPERATORS = {"groups": {"method": "none"}, "weights": {}, "split": {}}
_numbers = itertools.count()
DISK_OR_SLOW = pytest.mark.parametrize(
    "world",
    ["disk", *(pytest.param(name, marks=pytest.mark.slow) for name in ("s3", "s3_with_keys"))],
    indirect=True,
)
"""For tests whose trainings and runs take most of the time on S3: what they do there, others show as well."""
LINEAR = ["--set", "epochs=2", "--set", "batch_size=64", "--executor", "local"]


@dataclass(frozen=True)
class World:
    """An output with three versions, each with the rows of the one before and more."""

    folder: Path
    output: str
    recipe: Path
    names: tuple[str, str, str]

    @property
    def place(self) -> Place:
        return output_of(self.output)

    def at(self, index: int) -> str:
        return f"{self.output}@{self.names[index]}"


def call(*words: str, code: int = 0) -> str:
    """What a command prints, on one line; it never prints the key of the store."""
    return " ".join(called(words, code).output.split())


def record(*words: str) -> dict[str, Any]:
    """The record that a command prints."""
    found: dict[str, Any] = json.loads(called((*words, "--json")).stdout)
    return found


def called(words: Sequence[str], code: int = 0) -> Result:
    done = CliRunner().invoke(app, [*words])
    assert done.exit_code == code, (words, done.output)
    assert SECRET not in done.output
    return done


def add_night(folder: Path, index: int) -> None:
    counts = (200, 100, 60, 40)
    (folder / "data").mkdir(exist_ok=True)
    rows = spurious_table(600).slice(sum(counts[:index]), counts[index])
    pq.write_table(rows, folder / "data" / f"n{index}.parquet")


def write_recipe(folder: Path, output: str) -> Path:
    changes = {"operators": OPERATORS, "incremental": {"base": "current", "mode": "predict"}}
    values = recipe_for(folder / "data", Path("x"), **changes) | {"output": {"path": output}}
    (folder / "recipe.yaml").write_text(json.dumps(values))
    return folder / "recipe.yaml"


def publish(folder: Path, output: str) -> tuple[str, str, str]:
    """Publish three versions, each with a page that stands for its report."""
    names = []
    for index in range(3):
        add_night(folder, index)
        names.append(run(Recipe.load(write_recipe(folder, output))).version)
        write_whole(output_of(output) / "reports" / f"{names[-1]}.html", b"<body>\n<p>groups</p>\n</body>\n")
    return names[0], names[1], names[2]


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, str, str]]:
    folder = tmp_path_factory.mktemp("on_disk")
    return folder, publish(folder, str(folder / "out"))


@pytest.fixture(scope="module")
def on_s3(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, tuple[str, str, str]]:
    folder, bucket = tmp_path_factory.mktemp("on_s3"), s3.bucket()
    return bucket, folder, publish(folder, s3.uri(bucket, "out"))


@pytest.fixture(
    params=["disk", *(pytest.param(name, marks=pytest.mark.slow) for name in ("s3", "s3_with_keys"))]
)
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A copy of the three versions: on a disk, or in a bucket by keys of the environment or of the URI."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    output = str(tmp_path / "out")
    if request.param == "disk":
        folder, names = request.getfixturevalue("on_disk")
        shutil.copytree(folder / "out", output)
    else:
        server: S3Server = request.getfixturevalue("s3")
        bucket, folder, names = request.getfixturevalue("on_s3")
        target = f"out-{next(_numbers)}"
        server.copy(bucket, "out", target)
        output = server.uri(bucket, target)
        if request.param == "s3":
            output = f"s3://{bucket}/{target}"
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
    shutil.copytree(folder / "data", tmp_path / "data")
    return World(tmp_path, output, write_recipe(tmp_path, output), names)


def contents(place: Place) -> dict[str, bytes]:
    """Every file of an output but those of the lease, of the run and of the listing."""
    if isinstance(place, ObjectPath):
        found = {path.key[len(place.key) + 1 :]: path.read_bytes() for path in place.below()}
    else:
        files = [path for path in place.rglob("*") if path.is_file()]
        found = {str(path.relative_to(place)): path.read_bytes() for path in files}
    left_out = (".lease/", "runs/", "CURRENT", "mlflow.db", "identities.json")
    return {name: data for name, data in found.items() if not name.startswith(left_out)}


def test_it_is_withdrawn_and_taken_back(world: World, caplog: pytest.LogCaptureFixture) -> None:
    before, last = contents(world.place), world.names[2]
    foreseen = call("retract", world.at(2), "--why", "labels of May", "--dry-run")
    assert f"readers get {world.names[1]} from now on" in foreseen
    assert contents(world.place) == before
    call("retract", world.at(2), "--why", "labels of April")
    shown = call("retract", world.at(2), "--why", "labels of May")
    assert f"{last} is withdrawn: labels of May" in shown
    assert "the record keeps the earlier reasons: labels of April" in shown
    assert current_version(world.place) == world.names[1]
    after = contents(world.place)
    assert set(after) - set(before) == {f"withdrawn/{last}.json"}
    folder = f"versions/{last}"
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {f"{folder}/README.md", f"{folder}/croissant.json", f"reports/{last}.html"}
    for name in changed:
        assert b"labels of May" in after[name]
    assert last in call("versions", world.output)
    assert "withdrawn: labels of May" in call("lineage", world.at(2))
    with caplog.at_level(logging.WARNING, "rowsieve"):
        call("groups", world.at(2))
    assert f"{last} was withdrawn: labels of May" in caplog.text
    assert "stands again" in call("retract", world.at(2), "--undo")
    assert contents(world.place) == before
    assert current_version(world.place) == last


def test_a_run_over_withdrawn_data_is_refused(world: World) -> None:
    for index in (2, 1):
        call("retract", world.at(index), "--why", f"labels of night {index}")
    before = contents(world.place)
    shown = call("run", str(world.recipe), code=2)
    assert f"the version {world.names[2]} again, which was withdrawn: labels of night 2" in shown
    assert f"retract {world.place}@{world.names[2]} --undo" in shown
    for verb in ("plan", "status"):
        found = record(verb, str(world.recipe))
        assert (found["withdrawn"], found["withdrawn_as"]) == ("labels of night 2", world.names[2])
    assert contents(world.place) == before


@DISK_OR_SLOW
def test_a_run_over_more_data_continues_where_versions_are_withdrawn(world: World) -> None:
    for index in (2, 1):
        call("retract", world.at(index), "--why", f"labels of night {index}")
    add_night(world.folder, 3)
    grown = record("run", str(world.recipe))["version"]
    assert current_version(world.place) == grown not in world.names


def test_where_all_are_withdrawn_readers_are_told(world: World) -> None:
    for index in range(3):
        call("retract", world.at(index), "--why", f"labels of night {index}")
    assert pointed_version(world.place) is current_version(world.place) is None
    told = call("groups", world.output, code=2)
    assert f"the latest, {world.names[2]}, was withdrawn: labels of night 2" in told
    call("retract", world.at(0), "--undo")
    assert pointed_version(world.place) == current_version(world.place) == world.names[0]


def test_the_differences_of_two_versions(world: World) -> None:
    rows = world.folder / "rows.parquet"
    for words in (["diff", world.at(1), world.at(2)], ["diff", *world.names[1:], "--output", world.output]):
        counts = record(*words, "--rows", str(rows))["rows"]
        assert (counts["common"], counts["new"]) == (300, 60)
        table = pq.read_table(rows)
        assert (table.column("change").to_pylist().count("new"), len(table) >= 60) == (60, True)
        rows.unlink()
    call("retract", world.at(2), "--why", "labels of May")
    call("diff", world.at(1), world.at(2))


def test_tables_are_named_with_a_command_that_mends_them(world: World) -> None:
    to = {name: f"{name}:{world.folder}/{name}" for name in ("parquet", "hf", "delta")}
    for target in to.values():
        call("export", world.at(2), "--to", target, "--executor", "local")
    shown = call("retract", world.at(2), "--why", "labels of May")
    for name, target in to.items():
        assert f"it was exported to {name} {target.partition(':')[2]}, which still holds it" in shown
        mend = f"rowsieve export {world.place}@{world.names[1]} --to {target}"
        assert f"{mend} --mode {'append' if name == 'parquet' else 'overwrite'}" in shown
    refused = call("export", world.at(2), "--to", f"parquet:{world.folder}/x", "--executor", "local", code=2)
    assert "was withdrawn: labels of May" in refused
    for name in ("hf", "delta"):
        call("export", world.at(1), "--to", to[name], "--mode", "overwrite", "--executor", "local")
    tables = record("retract", world.at(2), "--why", "labels of May")["exports"]
    replaced = {table["format"]: table["replaced_by"] for table in tables}
    assert replaced == {"parquet": "", "hf": world.names[1], "delta": world.names[1]}
    shutil.rmtree(world.folder / "delta")
    call("versions", world.output, "remove", world.names[2])
    told = call("retract", world.at(2), "--why", "x", code=2)
    assert f"It was exported to delta {world.folder}/delta (replaced by {world.names[1]})" in told


@DISK_OR_SLOW
def test_the_alias_of_a_model_goes_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{world.folder}/server.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(world.folder)  # MLflow writes its artifacts beside it
    mlflow = MlflowClient(uri, uri)
    for index in (1, 2):
        call("retrain", "--dataset", world.at(index), "--trainer", "erm", "--register", "churn", *LINEAR)
    mlflow.set_registered_model_alias("churn", "champion", "2")

    def champion() -> str:
        return str(mlflow.get_model_version_by_alias("churn", "champion").version)

    shown = call("retract", world.at(2), "--why", "labels of May")
    assert "model churn 2 was trained on it" in shown
    assert "champion points to it" in shown
    assert champion() == "2"
    assert mlflow.get_model_version("churn", "2").tags[WITHDRAWN_TAG] == "labels of May"
    assert WITHDRAWN_TAG not in mlflow.get_model_version("churn", "1").tags
    assert "champion now points to version 1" in call("retract", world.at(2), "--why", "labels", "--models")
    assert champion() == "1"
    call("retract", world.at(2), "--undo")
    assert WITHDRAWN_TAG not in mlflow.get_model_version("churn", "2").tags
    told = call("versions", world.output, "remove", world.names[1], code=2)
    assert "models lead back to it: churn 1" in told


def test_versions_are_removed_by_the_command(world: World) -> None:
    words = ("versions", world.output, "remove", world.names[2])
    assert "it is the current version. Withdraw it first" in call(*words, code=2)
    call("retract", world.at(2), "--why", "labels of May")
    before = contents(world.place)
    assert "would remove 1 version" in call(*words, "--dry-run")
    assert contents(world.place) == before
    call(*words)
    assert published_versions(world.place) == sorted(world.names[:2])
    assert not version_folder(world.place, world.names[2]).exists()
    assert "was removed from" in call("lineage", world.at(2), code=2)
    shown = call("run", str(world.recipe), code=2)
    assert "which was withdrawn: labels of May" in shown
    assert f"remove the record of the removed version: {world.place}/withdrawn/{world.names[2]}.json" in shown


@pytest.mark.parametrize("answers", [3, 2])  # the first takes the lease
def test_a_store_that_fails_midway_leaves_the_older_version(answers: int, world: World, s3: S3Server) -> None:
    if isinstance(world.place, Path):
        pytest.skip("a disk has no server that could fail")
    before, written = contents(world.place), []

    def denied(method: str, path: str) -> int | None:
        if method in ("PUT", "DELETE") and ".lease" not in path:
            written.append(path)
        return 403 if len(written) > answers else None

    rule: Callable[[str, str], int | None] = denied
    with s3.faults.answering(rule):
        shown = call("retract", world.at(2), "--why", "labels of May", code=2)
    assert "The object store refuses: permission denied" in shown
    assert current_version(world.place) == world.names[1]
    call("retract", world.at(2), "--why", "labels of May")
    call("retract", world.at(2), "--undo")
    assert contents(world.place) == before
