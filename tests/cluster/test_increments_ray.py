"""An incremental run on Ray: the same bytes as in this process, with every method in the recipe."""

from pathlib import Path
from typing import Any

import pytest

from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.data import recipe_for, spurious_table, write_shards
from tests.unit.engine.runs.test_full_chain import CHAIN
from tests.unit.engine.runs.test_increments import add_night, computed
from tests.unit.engine.runs.test_run import content

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]


@pytest.mark.slow
def test_ray_goes_on_as_one_process_does(tmp_path: Path) -> None:
    sections: dict[str, Any] = {"operators": CHAIN, "incremental": {"base": "current", "mode": "predict"}}
    write_shards(tmp_path / "data", spurious_table(), 2)

    def night(out: str, **settings: Any) -> Any:
        value = recipe_for(tmp_path / "data", tmp_path / out, **sections, run=settings)
        return run(Recipe.parse(value))

    first = night("alone")
    night("ray")
    add_night(tmp_path, spurious_table(80, seed=4), "z")
    alone = night("alone")
    on_ray = night("ray", executor="ray", shards_in_flight=3)
    assert on_ray.version == alone.version != first.version
    assert content(on_ray.path) == content(alone.path)
    record = alone.manifest["incremental"]
    assert record["outcome"] == "predict"
    assert set(record["fitted"]) >= {"dckm", "weights"}
    assert record["fitted"]["dckm"] == "it cannot place new rows"
    assert {"ingest", "probe", "gradients", "groups", "eos", "outliers", "split"} <= set(record["kept"])
    assert computed(on_ray)["eos"] == (1, 2)
