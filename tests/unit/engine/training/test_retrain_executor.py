"""When ``rowsieve retrain`` starts a Ray of its own, and when one process is enough."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.cli.common import run_section
from engine.cli.retrain import run_retrain
from engine.core.errors import InputError
from engine.recipe.trainers import parse_params
from engine.training.retrain import RetrainOptions, parse_grid, parse_settings
from engine.training.training_run import TrainSpec

ROWS = 60


class StartedError(Exception):
    """Carries the executor that was to be opened."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of few rows, and nothing is opened."""

    def opened(section: Any, *, verbose: bool) -> Any:
        raise StartedError(section.executor)

    manifest = {"summary": {"splits": {"train": ROWS - 20, "validation": 20}}}
    monkeypatch.setattr("engine.execution.cluster.executor", opened)
    monkeypatch.setattr(
        "engine.training.data.version.open_version", lambda _: SimpleNamespace(manifest=manifest)
    )
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def started(
    folder: Path, settings: Sequence[str] = (), grid: Sequence[str] = (), executor: str = "auto"
) -> str:
    with pytest.raises(StartedError) as caught:
        retrain(folder, settings, grid, executor)
    return str(caught.value)


def retrain(folder: Path, settings: Sequence[str], grid: Sequence[str], executor: str) -> None:
    params = parse_params({"trainer": "gdro", **parse_settings(settings)})
    spec, options = TrainSpec(str(folder), params), RetrainOptions(parse_grid(grid))
    run_retrain(spec, options, section=run_section(executor), as_json=False, verbose=False)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("settings", "grid", "expected"),
    [
        ([], [], "local"),
        ([f"small_rows={ROWS}"], [], "local"),
        ([f"small_rows={ROWS - 1}"], [], "ray"),
        (["where=ray"], [], "ray"),
        (["resources={gpus: 1}"], [], "ray"),
        ([], ["lr=0.01,0.1"], "ray"),
    ],
)
def test_auto_takes_one_process_for_few_rows(
    tmp_path: Path, settings: list[str], grid: list[str], expected: str
) -> None:
    assert started(tmp_path, settings, grid) == expected


@pytest.mark.usefixtures("small")
def test_a_named_cluster_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert started(tmp_path) == "ray"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("executor", ["ray", "local"])
def test_what_was_asked_for_is_opened(tmp_path: Path, executor: str) -> None:
    assert started(tmp_path, ["where=ray"], executor=executor) == executor


def test_another_word_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give auto, ray or local"):
        retrain(tmp_path, [], [], "loca")
