"""Training on Ray Train: the bytes of the training in one process, also after a worker was killed."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import engine
from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.execution.ray_executor import RayExecutor
from engine.training import TrainResult, TrainSpec, parse_params, train
from engine.training.search import search_parameters
from operators.base import Executor
from tests.data import small_recipe

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]
HERE = "tests.cluster.test_training_ray"
KILL = Path(tempfile.gettempdir()) / f"rowsieve-kill-{os.getuid()}"
SMALL = {"epochs": 6, "batch_size": 40, "slots": 3, "checkpoint_every": 1}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    engine.run(small_recipe(folder, shards=4))
    return folder / "out"


class Mortal(nn.Module):
    """A linear model whose second worker dies after some steps, once."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(n_features, n_classes)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        second = torch.distributed.is_initialized() and torch.distributed.get_rank() == 1
        if second and self.calls == 60 and KILL.exists():
            KILL.unlink()
            os._exit(1)
        out: Tensor = self.head(x)
        return out


def run(dataset: Path, executor: Executor, folder: Path, **values: Any) -> TrainResult:
    return train(TrainSpec(dataset, parse_params({**SMALL, **values}), seed=2, folder=folder), executor)


def left_in(folder: Path) -> list[Path]:
    """All files but the leases, which say who wrote."""
    found = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [path for path in found if ".lease" not in path.parts]


def check_same(a: TrainResult, b: TrainResult) -> None:
    names = left_in(a.folder)
    assert names == left_in(b.folder)
    for name in names:
        assert (a.folder / name).read_bytes() == (b.folder / name).read_bytes(), name


@pytest.mark.slow
def test_two_workers_one_of_them_killed(published: Path, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "trainer": "boosted_cvar",
        "rounds": 4,
        "round_epochs": 2,
        "boosting": "lp",
        "model": f"{HERE}:Mortal",
    }
    KILL.touch()
    killed = run(published, RayExecutor(), tmp_path / "two", where="ray", workers=2, **values)
    assert not KILL.exists()
    check_same(run(published, LocalExecutor(), tmp_path / "one", **values), killed)
    assert len(killed.model.models) == 4
    assert json.loads((killed.folder / "training.json").read_text())["models"] == 4


@pytest.mark.slow
def test_what_stops_a_worker_reaches_the_user(published: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"diverged: .*ower train.lr"):
        run(
            published, RayExecutor(), tmp_path, trainer="gdro", where="ray", workers=2, lr=1e38, step_size=0.1
        )


@pytest.mark.slow
def test_cells_of_a_grid_are_tasks_and_are_found_again(published: Path) -> None:
    spec = TrainSpec(published, parse_params({**SMALL, "trainer": "gdro"}), seed=2)
    grid = {"lr": [0.01, 0.1], "weight_decay": [0.0, 0.01], "step_size": [0.01, 0.1]}
    on_ray = search_parameters(spec, grid, RayExecutor())
    made = {file: file.stat().st_mtime_ns for file in published.glob("models/*/training.json")}
    assert len(made) == 8

    here = search_parameters(spec, grid, LocalExecutor())
    assert here.to_dict() == on_ray.to_dict()
    assert made == {file: file.stat().st_mtime_ns for file in made}, "trained again"
