"""Increments, training, history and diff where the output lies on S3: as on a disk."""

from pathlib import Path
from typing import Any

import pytest

from engine.core.output_layout import output_of
from engine.recipe.recipe import Recipe
from engine.runs.diff import diff
from engine.runs.history import history, prune
from engine.runs.runner import run
from engine.storage.stores import store_of
from engine.training.data.version import open_version
from tests.data import recipe_for, spurious_table, write_shards
from tests.s3 import S3Server
from tests.unit.engine.runs.test_increments import add_night, computed
from tests.unit.engine.storage.test_object_output import CHEAP, files_of
from tests.unit.engine.training.test_nightly_training import ERM


@pytest.mark.slow  # a server, and six runs
def test_increments_on_s3(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runs.plugins.report.write_report", lambda *_: None)
    write_shards(tmp_path / "data", spurious_table(), 2)
    uri = s3.uri(s3.bucket(), "out")

    def night(out: str, **sections: Any) -> Any:
        section = {"base": "current", "mode": "predict"}
        value = recipe_for(tmp_path / "data", Path("out"), incremental=section, **sections)
        return run(Recipe.parse(value | {"operators": CHEAP, "output": {"path": out}}))

    for out in (uri, str(tmp_path / "disk")):
        night(out)
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    on_s3, on_disk = night(uri, train=ERM), night(str(tmp_path / "disk"))
    assert files_of(on_s3.path) == files_of(on_disk.path)
    assert on_s3.parts_taken_over == on_disk.parts_taken_over == 2
    assert computed(on_s3)["groups"] == (1, 2)
    assert on_s3.training["trained"]
    assert night(uri, train=ERM).training == on_s3.training
    output = output_of(uri)
    entries = history(output)
    assert [entry["base"] for entry in entries] == [entries[1]["version"], None]
    found = diff(*(open_version(f"{uri}@{entry['version']}") for entry in entries[::-1]))
    assert (found["rows"]["common"], found["rows"]["new"]) == (240, 60)
    assert prune(output, 1).versions == (entries[1]["version"],)
    needed = {entry["fingerprint"] for entry in on_s3.manifest["operators"]}
    assert {entry.name for entry in store_of(output).root.iterdir()} == needed
    assert night(uri).reused
