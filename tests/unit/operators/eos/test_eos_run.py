"""``eos`` in a recipe: its weights and marks are published, the same for any cut into shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.core.errors import InputError
from engine.runs.runner import run
from tests.data import small_recipe


def published(folder: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in sorted(folder.rglob("*.parquet")))


@pytest.mark.slow
@pytest.mark.parametrize("model", [{}, {"model": "probe", "alpha": 0.2}])
def test_weights_and_marks_are_published(tmp_path: Path, model: dict[str, Any]) -> None:
    found = []
    for name, shards in (("one", 1), ("four", 4)):
        options = {"eos": model, "outliers": {"rule": "eos"}}
        recipe = small_recipe(tmp_path / name, shards=shards, operators=options)
        found.append(published(Path(run(recipe).path)))
    one, four = found
    weight = one["weight"].to_numpy()
    train = one["split"].to_numpy(zero_copy_only=False) == "train"  # from which the weights are learnt
    assert weight[train].mean() == pytest.approx(1, abs=1e-4)
    assert weight.std() > 0.1
    assert set(one["outlier_source"].to_pylist()) <= {"", "eos", "eos+grasp:noise"}
    assert one["is_outlier"].equals(four["is_outlier"])
    np.testing.assert_allclose(weight, four["weight"].to_numpy(), rtol=1e-3, atol=1e-6)


def test_a_recipe_without_the_probe_is_refused(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, operators={"eos": {"model": "probe"}})
    chain = {name: params for name, params in recipe.operators.items() if name not in ("probe", "gradients")}
    with pytest.raises(InputError, match="the recipe has no probe"):
        run(recipe.model_copy(update={"operators": chain}))
