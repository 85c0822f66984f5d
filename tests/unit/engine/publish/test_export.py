"""A version in tables of others: all of it or nothing, once, with its digest in the table's own metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from connectors import open_source
from connectors.sink import write_parquet
from connectors.tables.export import CONTENT, VERSION, Mode
from engine.cli.app import app
from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.plan.exports import open_exports
from engine.publish.export import ExportResult, export
from engine.recipe.recipe import ExportSection, Recipe
from engine.runs.runner import run
from tests import tables
from tests.data import small_recipe

for package in ("lance", "deltalake", "pyiceberg"):
    pytest.importorskip(package)


class Version:
    """A published version without a run: two parts, and what an export reads of a manifest."""

    def __init__(self, folder: Path, name: str, n: int) -> None:
        self.folder, self.rows = folder / name, rows(n)
        paths = [f"data/part-{index:05d}.parquet" for index in range(2)]
        (self.folder / "data").mkdir(parents=True)
        for path, table in zip(paths, (self.rows.slice(0, 3), self.rows.slice(3)), strict=True):
            write_parquet(table, self.folder / path)
        self.manifest = {"version": name, "content": f"c0ffee{n}", "parts": [{"path": p} for p in paths]}


def rows(n: int) -> pa.Table:
    category = pa.dictionary(pa.int8(), pa.string())
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(2 * n), pa.float32()), 2)
    split = pa.array(["train", "test"] * n).slice(0, n).cast(category)
    small = pa.array([i % 100 for i in range(n)], pa.uint8())
    fields = [pa.field("row_id", pa.int64(), nullable=False), pa.field("v", vectors.type)]
    fields += [pa.field("split", category), pa.field("small", pa.uint8())]
    return pa.table([pa.array(range(n), pa.int64()), vectors, split, small], schema=pa.schema(fields))


class Target:
    """A table to export to."""

    def __init__(self, format: str, folder: Path) -> None:
        self.format = format
        made = tables.new(format, folder) if format == "iceberg" else None
        self.path = made.path if made else str(folder / "table")
        self.catalog = made.options["catalog"] if made else None
        self.made = made or tables.MadeTable(format, self.path)

    def section(self, mode: Mode) -> dict[str, Any]:
        return {"format": self.format, "path": self.path, "mode": mode, "catalog": self.catalog}

    def export(self, version: Version, mode: Mode, executor: Any = None) -> ExportResult:
        (table,) = open_exports([ExportSection.model_validate(self.section(mode))])
        return export(version.folder, version.manifest, table, lambda: executor or LocalExecutor())

    def ids(self) -> list[int]:
        """The table's rows, by our own source."""
        source = open_source(self.path, self.format, options=self.made.options)
        listing = source.list()
        columns = ["row_id", "split", "v", "small"]
        table = pa.concat_tables(source.read(shard, columns, listing.schema) for shard in listing.shards)
        for row in table.to_pylist():
            i = row["row_id"]
            assert row["split"] == ("test" if i % 2 else "train")
            assert (row["v"], row["small"]) == ([2.0 * i, 2.0 * i + 1], i % 100)
        return sorted(table["row_id"].to_pylist())

    def tags(self) -> dict[str, str]:
        """Return what the table's own metadata say of its newest state."""
        if self.format == "delta":
            from deltalake import DeltaTable

            found = DeltaTable(self.path).history(1)[0]
        elif self.format == "iceberg":
            snapshot = tables.catalog_of(self.made).load_table(self.path).current_snapshot()
            found = snapshot.summary.additional_properties
        else:
            import lance

            dataset = lance.dataset(self.path)
            found = dataset.read_transaction(dataset.version).transaction_properties
        return {key: found[key] for key in (VERSION, CONTENT)}


@pytest.fixture(params=["delta", "iceberg", "lance"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path)


def test_versions_come_once_and_go_as_the_mode_says(target: Target, tmp_path: Path) -> None:
    old, new = Version(tmp_path, "v1", 5), Version(tmp_path, "v2", 8)
    assert target.export(old, "create").written
    assert target.ids() == [*range(5)]
    assert target.tags() == {VERSION: "v1", CONTENT: "c0ffee5"}
    for mode in ("create", "append", "overwrite"):
        assert not target.export(old, mode).written
    with pytest.raises(InputError, match="is there already"):
        target.export(new, "create")
    assert target.export(new, "append").written
    assert target.ids() == sorted([*range(5), *range(8)])
    assert target.tags() == {VERSION: "v2", CONTENT: "c0ffee8"}
    assert not target.export(old, "append").written
    assert target.export(old, "overwrite").written
    assert target.ids() == [*range(5)]
    assert target.export(new, "overwrite").written
    state = target.export(new, "overwrite")
    assert not state.written
    assert target.ids() == [*range(8)]
    assert target.tags() == {VERSION: "v2", CONTENT: "c0ffee8"}


class Killed(LocalExecutor):
    """Dies after the first part."""

    def map(self, fn: Any, items: Sequence[Any], **_: Any) -> Iterator[Any]:
        yield fn(items[0])
        raise KeyboardInterrupt


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
def test_a_killed_export_shows_nothing_and_the_next_one_does_it(
    target: Target, mode: Mode, tmp_path: Path
) -> None:
    old, new = Version(tmp_path, "v1", 5), Version(tmp_path, "v2", 8)
    if mode != "create":
        target.export(old, "create")
    with pytest.raises(KeyboardInterrupt):
        target.export(new, mode, Killed())
    if mode == "create":
        with pytest.raises(Exception, match=r"(?i)no |not|none"):
            open_source(target.path, target.format, options=target.made.options).list()
    else:
        assert target.ids() == [*range(5)]
    assert target.export(new, mode).written
    assert target.ids() == sorted([*range(8), *(range(5) if mode == "append" else ())])


class Beaten(LocalExecutor):
    """While it works, somebody else exports the same version."""

    def __init__(self, other: Callable[[], Any]) -> None:
        self.other = other

    def map(self, fn: Any, items: Sequence[Any], **_: Any) -> Iterator[Any]:
        yield from [fn(item) for item in items]
        self.other()


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_another_export_that_was_faster_is_seen(target: Target, mode: Mode, tmp_path: Path) -> None:
    old, new = Version(tmp_path, "v1", 5), Version(tmp_path, "v2", 8)
    target.export(old, "create")
    assert not target.export(new, mode, Beaten(lambda: target.export(new, mode))).written
    assert target.ids() == sorted([*range(8), *(range(5) if mode == "append" else ())])


def rewrite(version: Version, names: Sequence[str], factor: int = 1) -> None:
    """Other names and larger numbers for the same rows."""
    for part in (version.folder / "data").iterdir():
        table = pq.read_table(part).rename_columns([*names])
        ids = pc.multiply(table.column(0), factor)
        write_parquet(table.set_column(0, names[0], ids), part)


def test_other_columns_are_not_written(target: Target, tmp_path: Path) -> None:
    target.export(Version(tmp_path, "v1", 5), "create")
    other = Version(tmp_path, "v2", 6)
    rewrite(other, ["row_id", "w", "split", "small"])
    with pytest.raises(InputError, match="has no column 'v'"):
        target.export(other, "append")
    if target.format != "lance":  # whose commit of new rows brings their schema along
        with pytest.raises(InputError, match="has no column 'v'"):
            target.export(other, "overwrite")
    assert target.ids() == [*range(5)]


def test_rows_are_written_with_the_types_that_are_there(target: Target, tmp_path: Path) -> None:
    schema = pa.schema([("small", pa.int64()), ("split", pa.string()), ("row_id", pa.int32())])
    schema = schema.append(pa.field("v", pa.list_(pa.float32())))
    first = rows(3).select(schema.names)
    tables.append(target.made, pa.table([first[f.name].cast(f.type) for f in schema], schema=schema))
    assert target.export(Version(tmp_path, "v1", 5), "append").written
    assert target.ids() == sorted([*range(3), *range(5)])
    wide = Version(tmp_path, "v2", 6)
    rewrite(wide, wide.rows.column_names, 2**40)
    with pytest.raises(InputError, match="do not fit"):
        target.export(wide, "append")
    assert target.ids() == sorted([*range(3), *range(5)])


def test_a_folder_that_is_no_export_is_not_to_be_removed(tmp_path: Path) -> None:
    """An error once advised to remove it, and it was a published version."""
    target, version = Target("parquet", tmp_path), Version(tmp_path, "v1", 5)
    (tmp_path / "table/v1/data").mkdir(parents=True)
    with pytest.raises(
        InputError, match=r"v1.*holds files that no export wrote\. Export to another place"
    ) as told:
        target.export(version, "append")
    assert "emove" not in str(told.value)


def test_a_folder_of_parquet_gets_whole_folders(tmp_path: Path) -> None:
    target, old, new = Target("parquet", tmp_path), Version(tmp_path, "v1", 5), Version(tmp_path, "v2", 8)
    assert target.export(old, "create").state == "folder v1"
    with pytest.raises(KeyboardInterrupt):
        target.export(new, "append", Killed())
    assert target.ids() == [*range(5)]
    with pytest.raises(InputError, match="is there already"):
        target.export(new, "create")
    with pytest.raises(InputError, match="cannot be replaced"):
        target.export(new, "overwrite")
    assert target.export(new, "append").written
    assert not target.export(new, "append").written
    assert target.ids() == sorted([*range(5), *range(8)])


@pytest.mark.slow
def test_a_recipe_writes_what_it_publishes_and_the_command_an_older_version(tmp_path: Path) -> None:
    target = Target("delta", tmp_path)
    recipe = small_recipe(tmp_path)
    value = recipe.model_dump(mode="json", exclude_defaults=True)
    value["output"]["export"] = [target.section("append")]
    result = run(Recipe.parse(value))
    assert target.tags() == {VERSION: result.version, CONTENT: result.manifest["content"]}
    files = sorted(tmp_path.glob("table/*.parquet"))
    assert [one.state for one in result.exports if one.written] == ["version 0"]
    again = run(Recipe.parse(value))
    assert again.reused
    assert [one.written for one in again.exports] == [False]
    assert sorted(tmp_path.glob("table/*.parquet")) == files
    command = ["export", str(result.path), "--executor", "local", "--to"]
    done = CliRunner().invoke(app, [*command, f"delta:{target.path}"])
    assert "was already version 0" in done.output
    done = CliRunner().invoke(app, [*command, f"lance:{tmp_path}/new.lance"])
    assert done.exit_code == 0, done.output
    source = open_source(str(tmp_path / "new.lance"))
    assert sum(shard.n_rows for shard in source.list().shards) == 240
    done = CliRunner().invoke(app, [*command, f"delta:{result.path}/data", "--mode", "overwrite"])
    assert done.exit_code == 2
    assert "among the files of its versions" in done.output


def test_a_table_that_the_operating_system_refuses_keeps_no_other_from_being_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    value = small_recipe(tmp_path).model_dump(mode="json", exclude_defaults=True)
    paths = [tmp_path / "file", tmp_path / "table"]
    value["output"]["export"] = [{"format": "delta", "path": str(path)} for path in paths]
    with pytest.raises(
        InputError, match=r"exports failed: Export to delta: .*file cannot be written"
    ) as caught:
        run(Recipe.parse(value))
    assert "output.path" not in str(caught.value)
    assert not {"\n", "\x1b"} & set(str(caught.value))
    assert list(tmp_path.glob("table/*.parquet"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--to", "delta"], "FORMAT:PATH"),
        (["--to", "rows.csv"], "delta, hf, iceberg, lance and parquet"),
        (["--to", "hudi:x"], "'delta', 'hf', 'iceberg', 'lance' or 'parquet'"),
        (["--to", "delta:x", "--mode", "upsert"], "'create', 'append' or 'overwrite'"),
        (["--to", "delta:x", "--catalog", "prod"], "knows no catalog"),
    ],
)
def test_the_command_names_what_is_wrong(options: list[str], text: str) -> None:
    done = CliRunner().invoke(app, ["export", "v1", *options])
    assert done.exit_code == 2
    assert text in done.output


def test_partitioned_tables_and_catalogs_out_of_place_are_refused(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    target, version = Target("delta", tmp_path), Version(tmp_path, "v1", 5)
    plain = version.rows.select(["row_id", "small"]).cast(
        pa.schema([("row_id", "int64"), ("small", "int16")])
    )
    write_deltalake(target.path, plain, partition_by=["small"])
    with pytest.raises(InputError, match="is partitioned"):
        target.export(version, "append")
    for format, catalog, text in (("delta", "prod", "knows no catalog"), ("iceberg", None, "needs the key")):
        section = {"format": format, "path": "a.b", "catalog": catalog}
        with pytest.raises(InputError, match=text):
            open_exports([ExportSection.model_validate(section)])
