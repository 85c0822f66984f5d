"""Formats by name: built-in ones and plugins; a broken plugin is named and left out."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from connectors import open_source, registry
from connectors.base import Connector, ConnectorError, Source, SourceOptions, SourceSpec
from connectors.csv_source import CsvSource
from connectors.registry import find_connector
from engine import Recipe
from engine.core.errors import InputError
from engine.plan.planner import make_plan


class SemicolonOptions(SourceOptions):
    strict: bool = False


class Semicolons(Connector[SemicolonOptions]):
    name = "ssv"
    summary = "a plugin"
    extensions = (".ssv", ".csv.ssv")
    schemes = ("ssv",)
    markers = ("_ssv_log",)
    Options = SemicolonOptions

    def open(self, spec: SourceSpec, options: SemicolonOptions) -> Source:
        return CsvSource(spec)


class Parquet(Semicolons):
    name = "parquet"


class Abstract(Connector[SourceOptions]):
    name = "abstract"


HERE = "tests.unit.connectors.test_connectors_registry"


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "ssv": f"{HERE}:Semicolons",
        "parquet": f"{HERE}:Parquet",
        "gone": "no_such_package:X",
        "number": f"{HERE}:HERE",
        "other": f"{HERE}:Semicolons",
        "abstract": f"{HERE}:Abstract",
    }
    points = tuple(EntryPoint(name, value, registry.ENTRY_POINTS) for name, value in values.items())
    monkeypatch.setattr(
        registry, "entry_points", lambda group: points if group == registry.ENTRY_POINTS else ()
    )


def test_every_built_in_format_says_what_it_is() -> None:
    found = registry.connectors()
    assert list(found)[: len(registry.BUILT_IN)] == list(registry.BUILT_IN)
    for name, connector in found.items():
        assert connector.name == name
        assert connector.summary
    endings = [ending for connector in found.values() for ending in connector.extensions]
    assert len(set(endings)) == len(endings)
    assert all(ending == ending.lower() and ending[0] == "." for ending in endings)


@pytest.mark.usefixtures("plugins")
def test_plugins_are_found_and_broken_ones_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rowsieve"):
        found = registry.connectors()
    assert [name for name in found if name not in registry.BUILT_IN] == ["ssv"]
    assert type(found["parquet"]).__module__ == "connectors.parquet_source"
    for text in ("parquet", "gone", "number", "other", "abstract", "no_such_package", "another format"):
        assert text in caplog.text


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize("path", ["data.csv.ssv", "ssv://anything", "folder", "*.ssv"])
def test_a_plugin_is_chosen_by_ending_scheme_or_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv.ssv").write_text("x\n1\n")
    (tmp_path / "folder/_ssv_log").mkdir(parents=True)
    assert find_connector(path).name == "ssv"


def test_an_unknown_format_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match=r"source\.format.*'parquett'.*'parquet'"):
        open_source("a", "parquett")
    with pytest.raises(ConnectorError, match="Known formats: auto, parquet, csv"):
        open_source("a", "zzz")


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"options": {"stict": True}}, r"source\.options\.stict: unknown key\. Did you mean 'strict'"),
        ({"options": {"strict": "word"}}, r"source\.options\.strict: .*boolean"),
        ({"format": "svs"}, r"source\.format: there is no format 'svs'\. Did you mean 'ssv'"),
    ],
)
def test_a_recipe_names_the_format_and_its_options(tmp_path: Path, source: dict[str, Any], text: str) -> None:
    (tmp_path / "a.ssv").write_text("x,y\n1,a\n2,b\n")
    value = {
        "name": "r",
        "source": {"path": str(tmp_path / "a.ssv"), "label": "y", **source},
        "output": {"path": str(tmp_path / "out")},
    }
    with pytest.raises(InputError, match=text):
        make_plan(Recipe.parse(value))
    value["source"] = {**value["source"], "format": "ssv", "options": {"strict": True}}  # type: ignore[dict-item]
    assert make_plan(Recipe.parse(value)).n_rows == 2
