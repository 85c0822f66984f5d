"""Recipes: what is accepted, and what an error says."""

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError, RowsieveError
from engine.plan.operator_setup import build_operator
from engine.recipe.recipe import Recipe
from engine.recipe.yaml_text import apply_override, parse_yaml, read_yaml

SMALL = {"name": "small", "source": {"path": "x.csv", "label": "y"}, "output": {"path": "out"}}


def load(tmp_path: Path, text: str, overrides: tuple[str, ...] = ()) -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    return Recipe.load(path, overrides)


def test_the_shortest_recipe_gets_the_standard_chain() -> None:
    recipe = Recipe.parse(SMALL)
    assert list(recipe.operators) == ["probe", "cues", "groups", "weights", "split"]
    assert recipe.seed == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sede": 3}, ["sede", "unknown key", "Did you mean 'seed'?"]),
        ({"incremental": {"keep": ["ingset"]}}, ["incremental.keep", "Did you mean 'ingest'?"]),
        ({"source": {"path": "x", "label": "y", "fetures": ["a"]}}, ["source.fetures", "'features'"]),
        ({"source": {"path": "x"}}, ["source.label", "is required"]),
        ({"seed": "many"}, ["seed", "integer", "'many'"]),
        ({"source": {"path": "x", "label": "y", "features": []}}, ["source.features", "at least 1"]),
        (
            {"source": {"path": "x", "label": "y", "features": ["a", "b", "a"]}},
            ["source.features", "'a' is given twice"],
        ),
        ({"source": {"path": "x", "label": "y", "classes": [1, 1]}}, ["source.classes", "1 is given twice"]),
        ({"report": {"fields": ["a", "a"]}}, ["report.fields", "'a' is given twice"]),
        ({"report": {"image": {"column": "i", "hight": 8}}}, ["report.image.hight", "'height'"]),
        ({"name": "a/b"}, ["name", "'a/b'"]),
    ],
)
def test_errors_name_the_key_and_the_fix(change: dict[str, object], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        Recipe.parse(SMALL | change, "r.yaml")
    text = str(caught.value)
    assert all(word in text for word in ["r.yaml", *words]), text


def test_operators_that_an_incremental_run_always_keeps_may_be_named() -> None:
    """`parts` was said not to be an operator."""
    recipe = Recipe.model_validate(Recipe.parse(SMALL).model_dump() | {"incremental": {"keep": ["parts"]}})
    assert recipe.incremental.keep == ("parts",)


def test_a_truth_column_in_two_roles_is_one_column() -> None:
    recipe = Recipe.parse(SMALL | {"truth": {"group": "g", "outlier": "g"}})
    assert recipe.truth.columns == ("g",)
    assert Recipe.parse(SMALL | {"source": {"path": "x", "label": "y", "classes": [True, 1]}})


def test_overrides_reach_deep_and_are_yaml(tmp_path: Path) -> None:
    text = "name: a\nsource: {path: x, label: y}\noutput: {path: o}\n"
    sets = ("operators.probe.l2=0.5", "operators.groups=", "source.features=[a, b]", "run.executor=local")
    recipe = load(tmp_path, text, sets)
    assert recipe.operators == {"probe": {"l2": 0.5}, "groups": {}}
    assert recipe.source.features == ("a", "b")
    assert recipe.run.executor == "local"


@pytest.mark.parametrize("override", ["nothing", "=1", "a..b=1", "name.x=1", "a=[1"])
def test_bad_overrides(override: str) -> None:
    with pytest.raises(InputError, match="--set"):
        apply_override({"name": "a"}, override)


def test_missing_recipe_names_the_nearest_file(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").touch()
    with pytest.raises(InputError, match=r"Did you mean '.*/recipe\.yaml'"):
        read_yaml(tmp_path / "recpie.yaml")
    with pytest.raises(InputError, match=f"Did you mean '{tmp_path}'"):
        read_yaml(tmp_path.with_name(tmp_path.name[:-1]) / "recipe.yaml")


def test_bad_yaml_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2"):
        load(tmp_path, "name: a\nsource: [1\n")


def test_a_key_that_is_given_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    """The last one won, so that a column could come back that the first had excluded."""
    text = "source:\n  exclude: [ssn]\n  label: y\n  exclude: [id]\n"
    with pytest.raises(InputError, match=r"'exclude' is given twice.* first, line 2, .* second, line 4, "):
        parse_yaml(text, "r.yaml")
    merged = parse_yaml("a: &a {x: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b, x: 3}\n", "r.yaml")
    assert merged == {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 3}}


def test_yaml_cannot_build_objects(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not valid YAML"):
        load(tmp_path, "name: !!python/object/apply:os.system ['true']\n")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(
    st.dictionaries(st.sampled_from([*SMALL, "seed", "truth", "operators", "run", "report", "odd"]), VALUES)
)
def test_anything_is_a_recipe_or_a_clear_error(change: dict[str, object]) -> None:
    try:
        recipe = Recipe.parse(SMALL | change)
    except RowsieveError as error:
        clear = str(error).startswith("recipe: ")
        assert clear
    else:
        assert Recipe.parse(recipe.model_dump(mode="json")) == recipe


def test_a_wrong_parameter_is_named_with_the_recipes_file(tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(json.dumps(SMALL))
    for recipe, place in ((Recipe.load(file), str(file)), (Recipe.parse(SMALL), "small")):
        with pytest.raises(InputError, match=rf"^{re.escape(place)}: operators\.split\.nonsense"):
            build_operator(recipe, "split", {"nonsense": 1})


def test_a_folder_in_place_of_a_recipe_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a folder\. Name the recipe itself"):
        Recipe.load(tmp_path)
    (tmp_path / "versions").mkdir()
    for command in ("quarantine", "status"):
        shown = CliRunner().invoke(app, [command, str(tmp_path)])
        assert shown.exit_code == 2
        assert "is the output folder of a recipe. Name the recipe" in " ".join(shown.output.split())


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("seed", "seed: 0xNUMBER"),
        ("operators.probe.epochs", "operators: {probe: {epochs: 0xNUMBER}}"),
        ("source.classes", "source: {path: x.csv, label: y, classes: [0xNUMBER]}"),
        ("source.label_map: a key", "source: {path: x.csv, label: y, label_map: {0xNUMBER: a}}"),
        ("train.params.epochs", "train: {params: {epochs: -0xNUMBER}}"),
    ],
)
def test_a_monstrous_whole_number_names_its_key(key: str, line: str, tmp_path: Path) -> None:
    """They ended in unexpected ValueErrors and OverflowErrors where they were used or shown."""
    rest = "".join(f"{name}: {json.dumps(value)}\n" for name, value in SMALL.items() if name not in line[:9])
    with pytest.raises(InputError, match=rf"{re.escape(key)}: a whole number of 68 bits"):
        load(tmp_path, rest + line.replace("NUMBER", "f" * 17))
    with pytest.raises(InputError, match="a number of more than 100 characters, line"):
        load(tmp_path, rest + line.replace("NUMBER", "f" * 500))


@pytest.mark.parametrize("text", ["1" + ":59" * 300_000, "1" + ":59" * 300_000 + ".5", "1" * 900_000])
def test_a_number_of_a_megabyte_takes_no_time(text: str, tmp_path: Path) -> None:
    """Numbers to the base 60 take the square of their length: a minute for a recipe of 1 MiB."""
    start = time.process_time()
    with pytest.raises(InputError, match="a number of more than 100 characters, line 1"):
        load(tmp_path, f"seed: {text}")
    assert time.process_time() - start < 10


def test_a_recipe_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="larger than 1 MiB"):
        Recipe.load(tmp_path / "r.yaml")


@pytest.mark.parametrize("key", ["lease_seconds", "no_progress_seconds"])
def test_a_time_that_no_thread_can_wait_for_is_refused(key: str) -> None:
    """The thread that renews the lease died of it, with a trace."""
    with pytest.raises(InputError, match=rf"run\.{key}: .*less than or equal to 1000000000"):
        Recipe.parse({**SMALL, "run": {key: 1e308}})


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"lr": "[" * 20_000 + "]" * 20_000}, "space.lr: the value is nested too deeply"),
        ({"lr": "1:" + ":".join(["59"] * 100_000)}, "a number of more than 100 characters"),
        ({"epochs": "1.." + "9" * 90}, "space.epochs: a whole number of 299 bits"),
        ({"lr": [1e-6 * i for i in range(1, 200)], "epochs": [*range(1, 60)]}, "the grid has 11,741 cells"),
    ],
    ids=["deep", "long", "large", "many"],
)
def test_a_search_without_an_end_is_refused(space: dict[str, object], words: str) -> None:
    """The values of a search are YAML within the recipe; 30,000 values of two keys are 900 million cells."""
    drawn = {"trials": 2} if words.endswith("bits") else {}
    train = {"trainer": "gdro", "search": {"space": space, **drawn}}
    started = time.process_time()
    with pytest.raises(InputError) as caught:
        Recipe.parse(SMALL | {"train": train}, "r.yaml")
    assert words in str(caught.value)
    assert time.process_time() - started < 3
