"""Gradients read from disk: the rows that were stored, in any layout, at their places in the plan."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from engine.core.errors import InputError
from engine.plan.planner import make_plan
from engine.plan.shard_matching import Matching
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.base import OperatorError
from operators.columns import vectors_to_numpy
from operators.gradients.params import GradientsParams
from operators.gradients.stored import open_stored
from operators.gradients.stored_adaptor import StoredGradients
from tests.data import recipe_for, small_recipe, spurious_table
from tests.unit.in_memory import run_operator, split_table

Floats = np.ndarray[Any, np.dtype[Any]]
ROWS = np.arange(5)


def write_bergson(folder: Path, G: Floats, base: str = "float32", *, old: bool = False) -> None:
    """As bergson does it; ``old``: with a structured type in place of sizes by name."""
    folder.mkdir(parents=True)
    G.tofile(folder / "gradients.bin")
    sizes = {"layer.0": 1, "layer.1": G.shape[1] - 1}
    info: dict[str, Any] = {"num_grads": len(G), "grad_sizes": sizes, "base_dtype": base}
    if old:
        formats = [f"({size},){G.dtype.str}" for size in sizes.values()]
        kind = {"names": [*sizes], "formats": formats, "itemsize": G.dtype.itemsize * G.shape[1]}
        info = {"num_grads": len(G), "dtype": kind}
    (folder / "info.json").write_text(json.dumps(info))


def save_npy(path: Path, G: Floats) -> dict[str, Any]:
    np.save(path / "g.npy", G)
    return {"path": str(path / "g.npy")}


def save_raw(path: Path, G: Floats) -> dict[str, Any]:
    G.tofile(path / "g.bin")
    return {"path": str(path / "g.bin"), "dtype": G.dtype.name, "shape": list(G.shape)}


def save_bergson(path: Path, G: Floats) -> dict[str, Any]:
    write_bergson(path / "index", G, G.dtype.name)
    return {"path": str(path / "index")}


def save_shards(path: Path, G: Floats) -> dict[str, Any]:
    for shard, part in enumerate(np.array_split(G, 3)):
        write_bergson(path / "run" / "shards" / f"{shard:05d}-of-00003", part, old=True)
    return {"path": str(path / "run")}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("save", [save_npy, save_raw, save_bergson, save_shards])
def test_every_layout_gives_the_rows_that_were_stored(
    save: Callable[[Path, Floats], dict[str, Any]], dtype: str, tmp_path: Path
) -> None:
    G = np.random.default_rng(0).normal(size=(23, 4)).astype(dtype)
    stored = save(tmp_path, G)
    rows = open_stored(Path(stored["path"]), "auto", stored.get("dtype"), stored.get("shape"))
    assert (rows.n_rows, rows.width) == G.shape
    for taken in (np.arange(23), np.array([3, 4, 5]), np.array([0, 7, 8, 15, 22]), np.array([], int)):
        np.testing.assert_array_equal(rows.read(taken), G[taken].astype(np.float32))


def test_bfloat16_is_the_upper_half_of_float32(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32).view(np.uint32)
    write_bergson(tmp_path / "index", (bits >> 16).astype(np.uint16), "bfloat16")
    rows = open_stored(tmp_path / "index", "auto", None, None)
    np.testing.assert_array_equal(rows.read(ROWS), (bits & 0xFFFF0000).view(np.float32))


def missing_shard(path: Path) -> dict[str, Any]:
    stored = save_shards(path, np.ones((9, 2), np.float32))
    (path / "run" / "shards" / "00001-of-00003").rename(path / "run" / "shards" / "00001-of-00003.part")
    return stored


def tokens(path: Path) -> dict[str, Any]:
    stored = save_bergson(path, np.ones((9, 2), np.float32))
    (path / "index" / "info.json").write_text(json.dumps({"attribute_tokens": True}))
    return stored


def cut_off(path: Path) -> dict[str, Any]:
    return save_raw(path, np.ones((9, 2), np.float32)) | {"shape": [10, 2]}


def unsaid(path: Path) -> dict[str, Any]:
    return {"path": save_raw(path, np.ones((9, 2), np.float32))["path"]}


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (lambda path: {"path": str(path / "none.npy")}, "cannot be read: No such file"),
        (lambda path: save_npy(path, np.ones(3, np.float32)), "holds float32 of shape"),
        (lambda path: save_npy(path, np.ones((3, 2), np.int32)), "holds int32 of shape"),
        (lambda path: save_npy(path, np.array([[{}]], object)), "not a NumPy file of numbers"),
        (lambda path: save_npy(path, np.asfortranarray(np.ones((3, 2), np.float32))), "column after column"),
        (missing_shard, r"missing: \['00001-of-00003'\]"),
        (tokens, "a gradient for each token"),
        (cut_off, "72 bytes; 10 rows of 2 numbers .* take 80"),
        (unsaid, "stored.dtype and stored.shape"),
    ],
)
def test_what_is_not_there_or_broken_is_named(
    broken: Callable[[Path], dict[str, Any]], text: str, tmp_path: Path
) -> None:
    stored = broken(tmp_path)
    with pytest.raises(ValueError, match=text):
        open_stored(Path(stored["path"]), "auto", stored.get("dtype"), stored.get("shape"))


def with_stored(recipe: Recipe, stored: dict[str, Any], **source: Any) -> Recipe:
    """The recipe without its probe, over stored gradients."""
    value = recipe.model_dump(mode="json", exclude_defaults=True)
    value["operators"] = {k: v for k, v in value["operators"].items() if k != "probe"}
    value["operators"]["gradients"] = {"stored": stored}
    value["source"] |= source
    return Recipe.parse(value)


def gradients_of(recipe: Recipe) -> Floats:
    plan = make_plan(recipe)
    tables = [plan.reader().read(shard.index, ["gradient"]) for shard in plan.shards]
    return np.concatenate([vectors_to_numpy(table["gradient"]) for table in tables])


def test_each_shard_gets_its_own_rows_and_what_is_stored_is_fingerprinted(tmp_path: Path) -> None:
    G = np.random.default_rng(0).normal(size=(240, 3)).astype(np.float32)
    stored = save_npy(tmp_path, G)
    operator = StoredGradients(GradientsParams.model_validate({"stored": stored}))
    labels = split_table(pa.table({"y": np.zeros(240, np.int32)}), [7, 100, 101])
    found, metrics = run_operator(operator, labels, tmp_path)
    np.testing.assert_array_equal(vectors_to_numpy(found["gradient"]), G)
    assert metrics == {"numbers_per_row": 3.0}
    with pytest.raises(OperatorError, match="holds 240 rows, and the source 140"):
        run_operator(operator, labels[:2] + labels[2:3] + [labels[3].slice(0, 39)], tmp_path)
    recipe = with_stored(small_recipe(tmp_path), stored)
    before = make_plan(recipe).fingerprint_of("gradients")
    np.save(tmp_path / "g.npy", 2 * G)
    assert make_plan(recipe).fingerprint_of("gradients") != before
    assert make_plan(recipe).learnt_from == make_plan(small_recipe(tmp_path)).learnt_from
    with pytest.raises(InputError, match=r"operators\.gradients\.stored: .* cannot be read"):
        make_plan(with_stored(recipe, {"path": "nowhere.npy"}))


def test_an_increment_that_moves_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = with_stored(small_recipe(tmp_path), save_npy(tmp_path, np.ones((240, 3), np.float32)))
    matching = Matching((1, 2, 3, 0), (0, 1, 2), 0, ())
    monkeypatch.setattr("engine.plan.planner.find_base", lambda *_: ("v1", {"schema": []}))
    monkeypatch.setattr("engine.plan.version_resolution.match_shards", lambda *_: matching)
    with pytest.raises(InputError, match="it reads stored rows by position"):
        make_plan(recipe)


def test_a_row_that_is_not_finite_is_named(tmp_path: Path) -> None:
    G = np.ones((9, 2), np.float16)
    G[4, 1] = np.inf
    operator = StoredGradients(GradientsParams.model_validate({"stored": save_npy(tmp_path, G)}))
    labels = split_table(pa.table({"y": np.zeros(9, np.int32)}), [3])
    with pytest.raises(OperatorError, match="row 4 of the stored gradients"):
        run_operator(operator, labels, tmp_path)


def test_an_increment_whose_array_did_not_grow_is_refused(tmp_path: Path) -> None:
    stored = save_npy(tmp_path, np.ones((240, 3), np.float32))
    sections: dict[str, Any] = {
        "incremental": {"base": "current", "mode": "predict"},
        "operators": {"groups": {"method": "none"}},
    }
    run(with_stored(small_recipe(tmp_path, **sections), stored))
    pq.write_table(spurious_table(30, seed=1), tmp_path / "data" / "s9.parquet")
    recipe = Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "out", **sections))
    with pytest.raises(InputError, match="holds 240 rows, and the source 270"):
        run(with_stored(recipe, stored))
    save_npy(tmp_path, np.ones((270, 3), np.float32))
    assert run(with_stored(recipe, stored)).manifest["rows"] == 270


@pytest.mark.slow
def test_a_run_without_a_probe_finds_the_same_groups(tmp_path: Path) -> None:
    usual = small_recipe(tmp_path)
    expected = pq.read_table(run(usual).path / "data")
    recipe = with_stored(usual, save_npy(tmp_path, gradients_of(usual)))
    found = pq.read_table(run(recipe).path / "data")
    assert found["group"].equals(expected["group"])


def test_rows_that_are_not_finite_are_set_aside_and_another_length_is_an_error(tmp_path: Path) -> None:
    usual = small_recipe(tmp_path)
    G = np.random.default_rng(0).normal(size=(240, 3)).astype(np.float16)
    G[17, 1], G[200, 0] = np.nan, np.inf
    table = pq.read_table(run(with_stored(usual, save_npy(tmp_path, G), on_error="quarantine")).path / "data")
    aside = [row["row_id"] for row in table.to_pylist() if row["outlier_source"] == "quarantine"]
    assert aside == [17, 200]
    with pytest.raises(InputError, match="holds 239 rows, and the source 240"):
        run(with_stored(usual, save_npy(tmp_path, G[1:])))


def test_parameters_of_computing_do_not_go_with_stored_ones() -> None:
    with pytest.raises(ValidationError, match="stored is set"):
        GradientsParams.model_validate({"stored": {"path": "g.npy"}, "projection": 3})


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"base_dtype": "O"}, "not as floats"),  # bytes of the file were followed as addresses in memory
        ({"dtype": {"names": ["a"], "formats": ["(3,)O"]}, "grad_sizes": None}, "not as floats"),
        ({"base_dtype": "i8"}, "not as floats"),
        ({"base_dtype": "f8,f8"}, "not as floats"),
        ({"num_grads": -2, "grad_sizes": {"a": -3}, "base_dtype": "float64"}, "-2 rows of -3 numbers"),
        ({"num_grads": float("inf"), "base_dtype": "float64"}, "not a record of bergson's"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_forged_description_of_an_index_is_refused(
    info: dict[str, Any], words: str, tmp_path: Path
) -> None:
    write_bergson(tmp_path / "index", np.full((2, 3), 9e99), "float64")
    path = tmp_path / "index" / "info.json"
    found = json.loads(path.read_text()) | info
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))
    with pytest.raises(ValueError, match=words):
        open_stored(tmp_path / "index", "auto", None, None)


@pytest.mark.parametrize("name", ["g.npy", "g.bin", "index/gradients.bin", "index/info.json"])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    write_bergson(tmp_path / "index", np.ones((2, 3)), "float64")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    place = tmp_path / name.partition("/")[0]
    with pytest.raises(ValueError, match="not a regular file"):
        open_stored(place, "auto", "float64", (2, 3))


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "g.npy").touch()
    with pytest.raises(ValueError, match="not a NumPy file"):
        open_stored(tmp_path / "g.npy", "auto", None, None)
