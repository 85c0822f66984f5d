"""Every method in one recipe: weights compose, verdicts agree, and the shards do not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset
import pytest

from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.data import small_recipe

CHAIN: dict[str, Any] = {
    "eos": {"alpha": 0.4},
    "outliers": {"rule": "all"},
    "dckm": {"n_clusters": 3, "max_iter": 5},
    "decorrelation": {"max_iter": 5},
    "weights": {"method": "group_balanced"},
    "split": {"method": "cluster", "drop_outliers": True, "within": "domain", "n_init": 2},
}


def published(folder: Path, shards: int) -> tuple[Any, dict[str, dict[str, float]], Recipe]:
    recipe = small_recipe(folder, shards=shards, operators=CHAIN)
    result = run(recipe)
    table = pyarrow.dataset.dataset(result.path / "data").to_table()
    metrics = {operator.name: operator.metrics for operator in result.operators}
    return table.to_pandas().sort_values("row_id"), metrics, recipe


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, dict[str, float]], Recipe]:
    return published(tmp_path_factory.mktemp("one"), 1)


def test_every_method_in_one_recipe_whatever_the_shards(
    one: tuple[Any, dict[str, dict[str, float]], Recipe], tmp_path: Path
) -> None:
    first, metrics, _ = one
    second, others, _ = published(tmp_path, 5)
    for name in ("group", "is_outlier", "outlier_source", "split"):
        assert first[name].tolist() == second[name].tolist(), name
    np.testing.assert_allclose(first["weight"], second["weight"], rtol=1e-3, atol=1e-4)
    assert set(first["split"]) == {"train", "validation", "dropped"}
    for operator, found in metrics.items():
        assert set(found) == set(others[operator])
    assert metrics["outliers"] == others["outliers"]


def test_weights_are_the_product_over_kept_rows(
    one: tuple[Any, dict[str, dict[str, float]], Recipe],
) -> None:
    table, metrics, recipe = one
    plan = make_plan(recipe)
    names = ["eos_weight", "dckm_weight", "decorrelation_weight", "eos_outlier", "group_outlier"]
    side = plan.reader().read(0, names).to_pandas()
    kept = ~table["is_outlier"].to_numpy()
    assert (table["split"].to_numpy()[~kept] == "dropped").all()
    assert (table["weight"].to_numpy()[~kept] == 0).all()
    assert table["weight"].to_numpy()[kept].mean() == pytest.approx(1, rel=1e-5)
    eos = np.where(side["eos_outlier"] & kept, 1.0, side["eos_weight"])
    product = eos * side["dckm_weight"] * side["decorrelation_weight"]
    # Within a group, rows of equal trust weigh by the product: the largest group's rows are all trusted.
    largest = table["group"].to_numpy() == table["group"].mode()[0]
    ratio = (table["weight"].to_numpy() / product)[largest & kept & (product > 1e-6)]
    np.testing.assert_allclose(ratio, ratio.iloc[0], rtol=1e-3)
    both = side["eos_outlier"].to_numpy() & (side["group_outlier"].astype(str) != "").to_numpy()
    assert (table["is_outlier"].to_numpy() == both).all()
    assert metrics["outliers"]["outliers"] == both.sum() > 0
    assert metrics["outliers"]["disputed"] > 0
