"""Pictures that rows name by paths are part of what a plan depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from connectors import open_source
from engine.core.errors import InputError
from engine.plan.picture_identities import with_picture_identities
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from operators.embed.adaptor import Embed
from operators.embed.params import EmbedParams

LETTERS = "tests.unit.operators.embed.test_embed:letters"


def write(folder: Path, name: str, shade: int) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (8, 8), shade).save(folder / name)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for part in range(2):
        names = [f"img/{part}{row}.png" for row in range(4)]
        for row, name in enumerate(names[:3]):  # the last one is not there
            write(folder, name, row)
        rows = {"file": names, "bare": ["a", "b", "c", None], "label": ["x", "y", "x", "y"]}
        pq.write_table(pa.table(rows), folder / f"{part}.parquet")
    return folder


def identities(folder: Path, path: str = "", **params: Any) -> dict[str, str]:
    path = path or str(folder)
    embed = {"model": "efficientnet_lite0", "column": "file", **params}
    recipe = Recipe.parse(
        {
            "name": "pictures",
            "source": {"path": path, "label": "label", "format": "parquet"},
            "operators": {
                "embed": embed,
                "cues": {},
                "groups": {"method": "cues"},
                "weights": {},
                "split": {},
            },
            "output": {"path": str(folder.parent / "out")},
        }
    )
    found = make_plan(recipe).listing.identities
    return {Path(name).name: identity for name, identity in found.items()}


@pytest.mark.parametrize("model", ["efficientnet_lite0", LETTERS])
def test_other_pictures_under_the_same_names_are_another_content(data: Path, model: str) -> None:
    before = identities(data, model=model)
    assert identities(data, model=model) == before
    write(data, "img/00.png", 200)
    after = identities(data, model=model)
    assert after["0.parquet"] != before["0.parquet"]
    assert after["1.parquet"] == before["1.parquet"]
    write(data, "img/13.png", 200)
    assert identities(data, model=model)["1.parquet"] != before["1.parquet"]


def test_sources_without_pictures_keep_their_identities(data: Path) -> None:
    plain = open_source(str(data), "parquet").list().identities
    without = {Path(name).name: identity for name, identity in plain.items()}
    assert identities(data, model="minilm") == without
    assert identities(data, model=LETTERS, column="bare") == without
    assert identities(data) != without


def test_pictures_are_found_wherever_the_source_is_named_from(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_path = identities(data)
    assert identities(data, f"file://{data}") == as_path
    monkeypatch.chdir(data.parent)
    assert identities(data, "data") == as_path


def test_pictures_outside_of_the_folder_are_none(data: Path) -> None:
    rows = {"file": ["../outside.png", "a\0b", "img/00.png"], "label": ["x", "y", "x"]}
    for part in range(2):
        pq.write_table(pa.table(rows), data / f"{part}.parquet")
    before = identities(data)
    write(data.parent, "outside.png", 1)
    assert identities(data) == before


def test_pictures_beside_a_source_that_is_not_local_are_refused(data: Path) -> None:
    import fsspec

    remote = fsspec.filesystem("memory")
    remote.put(str(data / "0.parquet"), "/pictures/0.parquet")
    recipe = Recipe.parse(
        {
            "name": "pictures",
            "source": {"path": "memory://pictures/0.parquet", "label": "label"},
            "operators": {},
            "output": {"path": str(data.parent / "out")},
        }
    )
    source = open_source("memory://pictures/0.parquet")
    for model in ("efficientnet_lite0", LETTERS):
        chain = [Embed(EmbedParams(model=model, column="file"))]
        listing = source.list()
        if model == LETTERS:
            assert with_picture_identities(recipe, chain, source, listing) is listing
            continue
        with pytest.raises(InputError, match=r"embed\.column: 'file' is text.*Store the bytes"):
            with_picture_identities(recipe, chain, source, listing)
