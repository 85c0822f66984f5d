"""A dataset folder for Hugging Face's hub, opened by ``datasets`` as its users do."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import ClassLabel, load_dataset
from typer.testing import CliRunner

from connectors.base import ConnectorError
from connectors.tables import staging
from connectors.tables.export import (
    CommitConflictError,
    Format,
    Mode,
    PendingExport,
    VersionContent,
    VersionTag,
    open_export,
)
from engine.cli.app import app
from engine.runs.runner import run
from tests.data import small_recipe

SPLITS = ("train", "validation", "test")
OLD, NEW = VersionTag("v1", "c0ffee01"), VersionTag("v2", "c0ffee02")
ROWS = pa.table({"row_id": [0, 1]})


def started(path: Path | str, mode: Mode = "create", tag: VersionTag = OLD) -> PendingExport:
    return open_export("hf", str(path), mode).start_export(ROWS.schema, tag)


def done(pending: PendingExport) -> bool:
    return pending.commit([pending.write(ROWS, 0)]).written


def test_datasets_opens_the_splits_with_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operators = {"groups": {"method": "none"}, "weights": {}, "split": {"test": 0.2}}
    version = run(small_recipe(tmp_path, shards=3, operators=operators))
    folder = tmp_path / "hub/people"
    folder.parent.mkdir()
    to = ["export", str(version.path), "--to", f"hf:{folder}", "--executor", "local"]
    shown = CliRunner().invoke(app, to)
    assert shown.exit_code == 0, shown.output
    assert sorted(path.name for path in folder.parent.iterdir()) == ["people"]
    loaded = load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert set(loaded) == set(SPLITS)
    table = pa.concat_tables(pq.read_table(part) for part in sorted((version.path / "data").iterdir()))
    for split, rows in loaded.items():
        wanted = table.filter(pa.compute.equal(table["split"], split))
        assert rows["row_id"][:] == wanted["row_id"].to_pylist()
        assert rows["weight"][:] == wanted["weight"].to_pylist()
        assert rows.features["label"] == ClassLabel(names=["no", "yes"])
        assert rows.features["label"].int2str(rows["label"][:]) == wanted["label"].to_pylist()
    features = loaded["train"].features
    assert {name: features[name].dtype for name in ("label", "group", "split", "is_outlier")} == {
        "label": "int64",
        "group": "int32",
        "split": "string",
        "is_outlier": "bool",
    }
    front = yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])
    patterns = {item["split"]: item["path"] for item in front["configs"][0]["data_files"]}
    assert patterns == {split: f"data/{split}-*.parquet" for split in SPLITS}
    assert "| `label` | `ClassLabel` | The label. |" in (folder / "README.md").read_text()
    assert "| `label` | `string` | The label. |" in (version.path / "README.md").read_text()
    for card in (folder / "README.md", version.path / "README.md"):
        named = re.findall(r"[\w./*-]+\.(?:json|parquet|md|html)", card.read_text())
        assert named
        assert [name for name in named if not list(card.parent.glob(name))] == []
        assert ("croissant" in card.read_text()) == (card.parent / "croissant.json").exists()
    again = CliRunner().invoke(app, to)
    assert "was already" in again.output


def test_classes_are_numbered_in_their_order_and_rows_without_one_stay_so(tmp_path: Path) -> None:
    content = VersionContent(None, lambda _: b"", "kind", lambda: ("yes", "no"))
    rows = pa.table({"kind": pa.array(["no", None, "yes"]), "row_id": [0, 1, 2]})
    pending = open_export("hf", str(tmp_path / "hub"), "create").start_export(rows.schema, OLD, content)
    pending.commit([pending.write(rows, 0)])
    (loaded,) = load_dataset(str(tmp_path / "hub"), cache_dir=str(tmp_path / "cache")).values()
    assert loaded.features["kind"] == ClassLabel(names=["yes", "no"])
    assert loaded["kind"][:] == [1, None, 0]


def test_overwrite_replaces_the_version(tmp_path: Path) -> None:
    assert done(started(tmp_path / "d"))
    with pytest.raises(ConnectorError, match=r"is there already\. Export with mode overwrite, or"):
        started(tmp_path / "d", tag=NEW)
    assert done(started(tmp_path / "d", "overwrite", NEW))
    assert not open_export("hf", str(tmp_path / "d"), "create").committed_state(OLD)
    assert open_export("hf", str(tmp_path / "d"), "create").committed_state(NEW) == "folder v2"
    assert os.listdir(tmp_path) == ["d"]


def test_two_rivals_who_create_keep_the_first(tmp_path: Path) -> None:
    one, other = started(tmp_path / "d"), started(tmp_path / "d", tag=NEW)
    assert done(one)
    with pytest.raises(ConnectorError, match=r"is there already\. Export with mode overwrite, or"):
        done(other)
    assert open_export("hf", str(tmp_path / "d"), "create").committed_state(OLD)


def test_an_export_that_is_beaten_by_another_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, beaten = Path.rename, []

    def late(self: Path, target: Path) -> Path:
        if target == tmp_path / "d" and not beaten:
            beaten.append(target)
            (target / "data").mkdir(parents=True)
            (target / "data/all-00007.parquet").touch()
            (target / "_rowsieve.json").write_text("{}")
        return rename(self, target)

    pending = started(tmp_path / "d", "overwrite")
    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(CommitConflictError):
        pending.attempt([pending.write(ROWS, 0)])
    assert done(pending)
    assert sorted(os.listdir(tmp_path / "d/data")) == ["all-00000.parquet"]


def test_readers_find_a_dataset_while_it_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export that was killed between its two renames left no dataset."""
    assert done(started(tmp_path / "d"))

    def killed(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", killed)
    assert done(started(tmp_path / "d", "overwrite", NEW))
    assert os.listdir(tmp_path) == ["d"]
    assert open_export("hf", str(tmp_path / "d"), "create").committed_state(NEW)


def test_without_an_exchange_folders_are_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert done(started(tmp_path / "d"))
    monkeypatch.setattr(staging, "_exchange", lambda *_: False)
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if ".v2." in self.name and target == tmp_path / "d" and not self.name.endswith(".old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    pending = started(tmp_path / "d", "overwrite", NEW)
    with pytest.raises(CommitConflictError, match="Input/output error"):
        pending.attempt([pending.write(ROWS, 0)])
    assert open_export("hf", str(tmp_path / "d"), "create").committed_state(OLD)
    monkeypatch.setattr(Path, "rename", rename)
    assert done(pending)
    assert os.listdir(tmp_path) == ["d"]


@pytest.mark.parametrize("format", ["hf", "parquet"])
def test_folders_of_dead_exports_of_other_versions_are_removed(format: Format, tmp_path: Path) -> None:
    """They were kept for ever, each as large as the data set."""
    above = tmp_path if format == "hf" else tmp_path / "d"
    stem = "_d.v0" if format == "hf" else "_v0"
    dead, live, mine = above / f"{stem}.{'a' * 32}", above / f"{stem}.{'b' * 32}", above / f"{stem}.mine"
    for folder in (dead, live, mine):
        (folder / "data").mkdir(parents=True)
        (folder / "data/x.parquet").touch()
    for path in (dead, dead / "data", dead / "data/x.parquet", live, live / "data", mine, mine / "data"):
        os.utime(path, (0, 0))
    pending = open_export(format, str(tmp_path / "d"), "create").start_export(ROWS.schema, OLD)
    assert done(pending)
    assert {path.name for path in above.iterdir()} == {
        "d" if format == "hf" else "v1",
        live.name,
        mine.name,
    }


def test_what_is_not_an_export_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with pytest.raises(ConnectorError, match=r"holds files that are not of an export: \.git"):
        started(tmp_path, "overwrite")
    with pytest.raises(ConnectorError, match="holds one version"):
        started(tmp_path / "d", "append")
    with pytest.raises(ConnectorError, match="is local"):
        started("s3://bucket/d")
    (tmp_path / "mine/data").mkdir(parents=True)
    (tmp_path / "mine/README.md").write_text("my own data set")
    with pytest.raises(ConnectorError, match=r"not of an export: README\.md, data"):
        started(tmp_path / "mine", "overwrite")
    assert done(started(tmp_path / "d"))
    (tmp_path / "d/data/mine.csv").touch()
    with pytest.raises(ConnectorError, match=r"not of an export: data/mine\.csv"):
        started(tmp_path / "d", "overwrite")
    shutil.rmtree(tmp_path / "d")
    shutil.rmtree(tmp_path / "mine")
    maps = pa.schema([("m", pa.map_(pa.string(), pa.int8()))])
    with pytest.raises(ConnectorError, match="'m' has type map<"):
        open_export("hf", str(tmp_path / "d"), "create").start_export(maps, OLD)
    assert os.listdir(tmp_path) == [".git"]


def test_a_folder_that_is_filled_meanwhile_is_left_alone(tmp_path: Path) -> None:
    pending = started(tmp_path / "d", "overwrite")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/mine.csv").touch()
    with pytest.raises(ConnectorError, match=r"not of an export: mine\.csv"):
        done(pending)
    assert (tmp_path / "d/mine.csv").exists()


@pytest.mark.parametrize("name", ["../../x", "/{tmp_path}/x", "a/b", "", "tr*in", "x\n", None])
def test_a_forged_split_is_no_path(name: str | None, tmp_path: Path) -> None:
    """Others may write the parts of a version; what a split is called becomes a name of a file."""
    split = name and name.format(tmp_path=tmp_path)
    rows = pa.table({"split": pa.array(["train", split]), "x": [1, 2]})
    content = VersionContent("split", lambda files: b"")
    export = open_export("hf", str(tmp_path / "d/e"), "create")
    pending = export.start_export(rows.schema, OLD, content)
    with pytest.raises(ConnectorError, match="not a name of a split"):
        pending.write(rows, 0)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("format", ["hf", "parquet"])
@pytest.mark.parametrize("record", ["[1]", "[" * 2000, "torn", "gigabytes", "pipe", "link"])
def test_a_forged_record_is_named(format: Format, record: str, tmp_path: Path) -> None:
    folder = tmp_path / ("d" if format == "hf" else "d/v1")
    folder.mkdir(parents=True)
    file = folder / "_rowsieve.json"
    if record == "pipe":
        os.mkfifo(file)  # opening it would wait for ever
    elif record == "link":
        file.symlink_to("/etc/hostname")
    elif record == "gigabytes":
        with file.open("wb") as handle:
            handle.truncate(2**40)  # takes no room on the disk
    else:
        file.write_text(record)
    with pytest.raises(ConnectorError, match=r"_rowsieve\.json .*"):
        open_export(format, str(tmp_path / "d"), "create").committed_state(OLD)
