"""The dataset card and the Croissant description of a version, read by the libraries that users have."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import re
from pathlib import Path
from typing import Any

import mlcroissant
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import load_dataset
from markdown_it import MarkdownIt

from engine.publish.croissant import describe_version, field_id
from engine.publish.dataset_card import write_card
from engine.publish.parts import summarise
from engine.publish.publisher import total_summary
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from engine.storage.manifest import read_manifest
from tests.data import recipe_for, spurious_table, write_shards

ODD = 'a b/ü<x>"#?%'
DEEP = [beginning * 5000 + "int64" + ">" * 5000 for beginning in ("list<item: ", "dictionary<values=")]
HOSTILE = "</td><script>alert(1)</script> | [x](javascript:1) `y`\n# title ![x](https://evil.test/x) *y*"
HOSTILE += " www.evil.test me@evil.test"
PLAIN = {"groups": {"method": "none"}, "weights": {}, "split": {}}


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A version of two shards with columns of many types and an odd name."""
    folder = tmp_path_factory.mktemp("card")
    table = spurious_table().slice(0, 120)
    n = table.num_rows
    extra = {
        ODD: pa.array(range(n), pa.int16()),
        "when": pa.array([datetime.datetime(2026, 1, 1)] * n, pa.timestamp("us")),
        "nothing": pa.array([None] * (n - 1) + [1.5]),
        "place": pa.array([{"x": 1}] * n),
    }
    for name, values in extra.items():
        table = table.append_column(name, values)
    write_shards(folder / "data", table, 2)
    recipe = recipe_for(folder / "data", folder / "out", operators=PLAIN)
    recipe["source"]["features"] = ["a", "b"]
    recipe["output"]["prefix"] = "rs_"
    return run(Recipe.parse(recipe)).path


def test_croissant_loads_every_row(version: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        dataset = mlcroissant.Dataset(str(version / "croissant.json"))
    warnings = [line for line in caplog.text.splitlines() if line.startswith("  -")]
    assert [
        line for line in warnings if "is recommended, but" not in line and "MAJOR.MINOR" not in line
    ] == []
    assert len(warnings) == 3  # a licence, a citation and a number of three parts: not ours to give
    assert dataset.metadata.date_published.date() == datetime.datetime.now(datetime.UTC).date()
    assert dataset.metadata.version == read_manifest(version)["version"]
    loaded = list(dataset.records("rows"))
    table = pa.concat_tables(pq.read_table(part) for part in sorted((version / "data").iterdir()))
    assert len(loaded) == table.num_rows == 120
    for name in ("rs_row_id", "rs_weight", ODD):
        assert [row[field_id(name)] for row in loaded] == table[name].to_pylist()
    assert [row[field_id("rs_split")].decode() for row in loaded] == table["rs_split"].to_pylist()
    assert field_id("place") not in loaded[0]
    assert set(loaded[0]) == {field_id(name) for name in table.column_names if name != "place"}


def test_croissant_names_splits_and_digests(version: Path) -> None:
    described = json.loads((version / "croissant.json").read_text())
    files = [item for item in described["distribution"] if item["@type"] == "cr:FileObject"]
    assert [item["contentUrl"] for item in files] == ["data/part-00000.parquet", "data/part-00001.parquet"]
    for item in files:
        data = (version / item["contentUrl"]).read_bytes()
        assert item["sha256"] == hashlib.sha256(data).hexdigest()
        assert item["contentSize"] == f"{len(data)} B"
    splits = mlcroissant.Dataset(str(version / "croissant.json")).records("splits")
    assert [row["splits/name"] for row in splits] == ["train", "validation", "test", "dropped"]
    sources = described["prov:wasDerivedFrom"]
    assert [item["@id"].rsplit("/", 1)[1] for item in sources] == ["s0.parquet", "s1.parquet"]


def test_the_card_has_the_hubs_front_matter(version: Path) -> None:
    text = (version / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    found = yaml.safe_load(front)
    assert found["size_categories"] == ["n<1K"]
    assert found["configs"][0]["data_files"] == [{"split": "rows", "path": "data/*.parquet"}]
    assert f"Version `{read_manifest(version)['version']}`: 120 rows" in body
    assert "| `rs_weight` | `float` |" in body
    assert "rows whose `rs_split` is `train`, with `rs_weight` as sample weight" in body


def test_a_versions_folder_loads_by_its_card(version: Path, tmp_path: Path) -> None:
    loaded = load_dataset(str(version), cache_dir=str(tmp_path / "cache"))
    assert {name: rows.num_rows for name, rows in loaded.items()} == {"rows": 120}


def test_quarantined_rows_are_among_the_rows_and_in_no_group(version: Path) -> None:
    manifest = dict(read_manifest(version))
    assert "could not be used" not in write_card(manifest)
    groups = {"0": 70, "1": 10, "-1": 40}
    manifest["summary"] = manifest["summary"] | {"groups": groups, "quarantined": 40, "outliers": 27}
    card = write_card(manifest)
    assert (
        "label `label`. 40 of them could not be used: they have the split `dropped` and the weight 0." in card
    )
    assert "further rows" not in card
    assert "| group -1 |" not in card
    assert "| in quarantine: split dropped, in no group, marked as outliers | 40 |" in card
    manifest["summary"] = manifest["summary"] | {"quarantined": 30}
    assert "| group -1 | 10 |" in write_card(manifest)


def test_groups_of_an_oracle_are_not_called_inferred(version: Path) -> None:
    manifest = dict(read_manifest(version))
    assert "Rowsieve inferred a group" in write_card(manifest)
    manifest["operators"] = [
        op | {"params": {"method": "oracle", "column": "_g"}} if op["name"] == "groups" else op
        for op in manifest["operators"]
    ]
    card = write_card(manifest)
    assert "`rs_group` was read from the column `_g`, which the recipe names as the truth (`oracle`)." in card
    assert "inferred a" not in card


def test_the_effective_sample_size_is_that_of_the_train_rows() -> None:
    columns = {
        "group": pa.chunked_array([[0, 0, 1, -1]]),
        "split": pa.chunked_array([["train", "train", "validation", "dropped"]]),
        "is_outlier": pa.chunked_array([[False, True, False, True]]),
        "outlier_source": pa.chunked_array([["", "eos", "", "quarantine"]]),
        "weight": pa.chunked_array([[1.0, 3.0, 9.0, 0.0]]),
    }
    found = total_summary([summarise(columns), summarise(columns)])
    assert found["effective_sample_size"] == pytest.approx(8.0**2 / 20.0)
    assert found["outliers"] == found["quarantined"] == 2


def test_names_of_strangers_are_escaped(version: Path) -> None:
    manifest: dict[str, Any] = dict(read_manifest(version)) | {"recipe": HOSTILE}
    manifest["source"] = manifest["source"] | {"path": HOSTILE, "label": HOSTILE}
    manifest["schema"] = [{"name": HOSTILE, "type": "string"}, *manifest["schema"]]
    manifest["summary"] = manifest["summary"] | {"groups": {HOSTILE: 7}}
    front, body = write_card(manifest, withdrawn=HOSTILE).split("---\n", 2)[1:]
    assert yaml.safe_load(front)["pretty_name"] == HOSTILE
    assert "<script" not in body
    page = MarkdownIt().enable("table").render(body.replace("**Withdrawn.**", "", 1))
    assert not re.search(r"<(a|img|script|em|strong)\b", page)
    assert not re.search(r"https?:|www\.|\w@\w", body)  # the hub makes links of addresses
    rows = [line for line in body.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) in (3, 4) for line in rows)
    assert len([line for line in body.splitlines() if line.startswith("# ")]) == 1
    described = json.loads(json.dumps(describe_version(manifest)))
    assert {"rows/" + mlcroissant_safe(HOSTILE)} <= {f["@id"] for f in described["recordSet"][0]["field"]}


def mlcroissant_safe(name: str) -> str:
    """Return the identifier without its beginning, checked to have no character that ends a path or query."""
    escaped = field_id(name).removeprefix("rows/")
    assert not set(escaped) & set('/?#<>"| \n')
    return escaped


def test_a_source_of_many_files_is_named_alone(version: Path) -> None:
    manifest: dict[str, Any] = dict(read_manifest(version))
    files = {f"/data/s{i}.parquet": "sha256:00" for i in range(101)}
    manifest["source"] = manifest["source"] | {"path": "/da ta", "files": files}
    assert describe_version(manifest)["prov:wasDerivedFrom"] == [{"@id": "file:///da%20ta"}]


@pytest.mark.parametrize("kind", DEEP, ids=["list", "dictionary"])
def test_a_forged_type_of_many_levels_has_no_field(kind: str, version: Path) -> None:
    manifest: dict[str, Any] = dict(read_manifest(version))
    known = describe_version(manifest)
    manifest["schema"] = [*manifest["schema"], {"name": "deep", "type": kind}]
    assert describe_version(manifest) == known
    assert "deep" in write_card(manifest)
