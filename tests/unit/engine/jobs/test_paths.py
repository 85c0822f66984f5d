"""Paths of a recipe on another machine, and the recipe that arrives there."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import InputError
from engine.jobs.package import collect
from engine.jobs.paths import paths_for_cluster, replace_paths
from engine.recipe.recipe import Recipe


def recipe_with(source: str, output: str) -> Recipe:
    recipe = {"name": "churn", "source": {"path": source, "label": "y"}, "output": {"path": output}}
    parsed = Recipe.parse(recipe)
    elsewhere = parsed.run.model_copy(update={"address": "ray://elsewhere:10001"})
    return parsed.model_copy(update={"run": elsewhere})


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept = paths_for_cluster(recipe_with("s3://b/x.parquet", "/mnt/out"), shared_files=False)
    assert (kept.source.path, kept.output.path, kept.run.address) == ("s3://b/x.parquet", "/mnt/out", None)
    shared = paths_for_cluster(recipe_with("data/*.csv", "out"), shared_files=True)
    assert shared.source.path == str(tmp_path / "data/*.csv")
    assert shared.output.path == str(tmp_path / "out")
    with pytest.raises(InputError, match=r"output\.path: 'out' is relative"):
        paths_for_cluster(recipe_with("/mnt/x", "out"), shared_files=False)
    with pytest.raises(InputError, match=r"source\.path: 'data/\*\.csv' is relative"):
        paths_for_cluster(recipe_with("data/*.csv", "/mnt/out"), shared_files=False)


TYPED = """
name: typed
source:
  path: in
  label: y
  label_map: {true: "yes", 2: 1, "1": null, "true": false, old: 0}
  filter:
  - [[a, "<", .inf], [b, "!=", -.inf], [at, ">=", 2026-01-15T10:00:00.5+02:00], [day, "==", 2026-01-15]]
  - [[raw, "==", !!binary gIA=], [name, in, ["1", 1, 1.0, true, 1e300, "2026-01-15", "yes", "\\u00e4"]]]
output: {path: out}
"""


def test_a_recipe_arrives_with_the_types_of_its_values(tmp_path: Path) -> None:
    """JSON would make texts of keys that are numbers or booleans, and null of infinite numbers."""
    (tmp_path / "typed.yaml").write_text(TYPED)
    recipe = Recipe.load(tmp_path / "typed.yaml")
    sent = replace_paths(recipe, lambda key, path: path)
    (tmp_path / "sent.yaml").write_text(sent.to_yaml(), "utf-8")
    for found in (sent, Recipe.load(tmp_path / "sent.yaml")):
        assert found.model_dump() == recipe.model_dump()
        keys = [(type(key), key, value) for key, value in found.source.label_map.items()]
        assert keys == [(type(key), key, value) for key, value in recipe.source.label_map.items()]
        assert repr(found.source.filter) == repr(recipe.source.filter)


def test_a_value_that_yaml_cannot_hold_is_named() -> None:
    changed = recipe_with("/in", "/out").model_dump(exclude_unset=True, exclude={"run"})
    changed["source"]["filter"] = [["price", "<", Decimal("1.5")]]
    with pytest.raises(InputError, match=r"churn: '1.5' is of the type Decimal, which .* YAML"):
        Recipe.parse(changed).to_yaml()


def test_every_path_of_a_recipe_is_looked_at() -> None:
    chain = {"gradients": {"stored": {"path": "g.npy"}}, "groups": {}}
    recipe = recipe_with("s3://in", "s3://out").model_copy(update={"operators": chain})
    with pytest.raises(InputError, match=r"operators\.gradients\.stored\.path: 'g\.npy' is relative"):
        paths_for_cluster(recipe, shared_files=False)
    found = replace_paths(recipe, lambda key, path: f"{key}/{path}")
    assert found.operators["gradients"]["stored"]["path"] == "operators.gradients.stored.path/g.npy"
    assert found.source.path == "source.path/s3://in"


def test_a_home_folder_is_the_one_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    recipe = recipe_with("~/data/*.csv", "~/out")
    shared = paths_for_cluster(recipe, shared_files=True)
    assert (shared.source.path, shared.output.path) == (f"{tmp_path}/data/*.csv", f"{tmp_path}/out")
    with pytest.raises(InputError, match=r"source\.path: '~/data/\*\.csv' is relative"):
        paths_for_cluster(recipe_with("~/data/*.csv", "/mnt/out"), shared_files=False)
    found = paths_for_cluster(
        recipe_with("~/data/*.csv", "/mnt/out"),
        shared_files=False,
        working_dir=tmp_path,
        shipped=["data/a.csv"],
    )
    assert found.source.path == "data/*.csv"


@pytest.mark.parametrize(("path", "folder"), [("ship", "ship"), ("ship/", "ship"), (".", ".")])
def test_the_shipped_folder_itself_is_a_source(
    path: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ship").mkdir()
    recipe = recipe_with(path, "/mnt/out")
    found = paths_for_cluster(recipe, shared_files=False, working_dir=Path(folder), shipped=["a.csv"])
    assert found.source.path == "."
    with pytest.raises(InputError, match=r"the shipped folder itself, .*/?\*\.parquet'; or .* --installed"):
        paths_for_cluster(
            recipe, shared_files=False, working_dir=Path(folder), shipped=["a.csv", "engine/__init__.py"]
        )


def with_networks_and_catalogs() -> Recipe:
    """A recipe with a path at every key that may have one, beside names that are no paths."""
    catalog = {"type": "sql", "uri": "sqlite:///cat.db", "warehouse": "lake"}
    params = {"model": "hf:nets/bert", "model_params": {"column": "text"}}
    space = {"model": ["hf:nets/bert", "hf:minilm"]}
    value: dict[str, Any] = {"name": "paths", "output": {"path": "out"}}
    value["source"] = {"path": "a.b", "label": "y", "format": "iceberg", "options": {"catalog": catalog}}
    value["output"] |= {"export": [{"format": "iceberg", "path": "a.b", "catalog": dict(catalog)}]}
    value["train"] = {"params": params, "search": {"space": space}}
    return Recipe.parse(value)


def test_folders_of_networks_and_files_of_catalogs_are_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = paths_for_cluster(with_networks_and_catalogs(), shared_files=True)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/cat.db", "warehouse": f"{tmp_path}/lake"}
    assert (found.source.path, found.source.options["catalog"]) == ("a.b", catalog)
    assert found.output.export[0].catalog == catalog
    assert found.train is not None
    assert found.train.params["model"] == f"hf:{tmp_path}/nets/bert"
    assert found.train.search is not None
    assert found.train.search.space["model"] == [f"hf:{tmp_path}/nets/bert", "hf:minilm"]
    away = with_networks_and_catalogs().model_copy(update={"source": recipe_with("/in", "/out").source})
    with pytest.raises(InputError, match=r"train\.params\.model: 'nets/bert' is relative"):
        paths_for_cluster(away, shared_files=False)


def test_folders_of_networks_are_checked_by_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWSIEVE_SCHEMES", "s3")
    value: dict[str, Any] = {
        "name": "x",
        "source": {"path": "s3://b/in", "label": "y"},
        "output": {"path": "s3://b/out"},
    }
    value["train"] = {"params": {"model": "hf:nets/bert", "model_params": {"column": "text"}}}
    with pytest.raises(InputError, match=r"train\.params\.model: the scheme 'file' is not allowed"):
        Recipe.parse(value)


def test_exports_are_outputs_and_tables_of_a_catalog_no_paths() -> None:
    exports = [{"format": "lance", "path": "t"}, {"format": "iceberg", "path": "a.b", "catalog": "mine"}]
    recipe = recipe_with("/in", "/out").model_dump(exclude_unset=True, exclude={"run"})
    recipe["output"]["export"] = exports
    with pytest.raises(InputError, match=r"output\.export\.0\.path: 't' is relative"):
        paths_for_cluster(Recipe.parse(recipe), shared_files=False)
    found = replace_paths(Recipe.parse(recipe), lambda key, path: f"/mnt/{path}")
    assert [export.path for export in found.output.export] == ["/mnt/t", "a.b"]


@pytest.mark.parametrize(
    "path", ["ship/data/*.csv", "ship/data", "ship/data/a.csv", "./ship/data/../data/a.csv"]
)
def test_small_data_are_shipped_on_request(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ship" / "data").mkdir(parents=True)
    (tmp_path / "ship" / "data" / "a.csv").write_text("x,y\n1,1\n")
    monkeypatch.chdir(tmp_path)
    contents = collect(b"", code="installed", working_dir=Path("ship"))
    sent = paths_for_cluster(
        recipe_with(path, "/mnt/out"), shared_files=False, working_dir=Path("ship"), shipped=contents.files
    )
    monkeypatch.chdir(tmp_path / "ship")  # a job starts in what was shipped
    assert list(Path().glob(sent.source.path))
    left_out = collect(b"", code="installed", working_dir=Path(), excludes=["data/"])
    with pytest.raises(InputError, match=r"source\.path"):
        paths_for_cluster(sent, shared_files=False, working_dir=Path(), shipped=left_out.files)
