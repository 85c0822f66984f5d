"""Memory that runs out is an error with exit code 4; it names the operator and the recipe's large numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InfeasibleError, is_out_of_memory
from engine.runs.runner import run
from operators.gradients.adaptor import Gradients
from operators.probe.adaptor import Probe
from tests.data import small_recipe


def numpys(*_: object) -> None:
    np.empty((2**40, 2**10))


def longer_than_addresses(*_: object) -> None:
    np.empty((2**40, 2**40))


def torchs(*_: object) -> None:
    torch.empty((2**30, 2**20))


@pytest.mark.parametrize("ask", [numpys, longer_than_addresses, torchs])
def test_the_words_of_libraries_are_known(ask: object) -> None:
    with pytest.raises((MemoryError, RuntimeError, ValueError)) as raised:
        ask()  # type: ignore[operator]
    assert is_out_of_memory(raised.value)
    assert not is_out_of_memory(RuntimeError("the shapes differ"))
    assert not is_out_of_memory(KeyError("out of memory"))


@pytest.mark.parametrize("ask", [numpys, torchs])
@pytest.mark.parametrize("step", ["fit", "open"])
def test_an_operator_without_memory_is_named(
    step: str, ask: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended as an unexpected error, or as one of shard 0 that nobody could act on."""
    monkeypatch.setattr(Probe if step == "fit" else Gradients, step, ask)
    operators = {"probe": {"epochs": 12_345, "trainer": "in_process"}, "gradients": {"chunk_size": 7_000}}
    recipe = small_recipe(tmp_path, shards=2, operators=operators)
    key = r"probe.*epochs: 12,345" if step == "fit" else r"gradients: shard 0: .*chunk_size: 7,000"
    with pytest.raises(InfeasibleError, match=rf"operators\.{key}") as raised:
        run(recipe)
    assert "memory ran out" in str(raised.value)
    assert "source.shard_bytes" in str(raised.value)


def test_memory_that_runs_out_elsewhere_is_no_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe(tmp_path, shards=1)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json", exclude_unset=True)))
    monkeypatch.setattr("engine.plan.planner.make_plan", numpys)
    monkeypatch.setattr("engine.runs.runner.make_plan", numpys, raising=False)
    done = CliRunner().invoke(app, ["run", str(tmp_path / "recipe.yaml")])
    assert done.exit_code == 4, done.output
    assert "memory ran out" in done.output
    assert "unexpected" not in done.output
