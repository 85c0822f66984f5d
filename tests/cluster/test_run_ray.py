"""Whole runs on Ray: the same bytes as in this process, whatever the parallelism."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.core.errors import InfeasibleError, InputError
from engine.execution.local_executor import LocalExecutor
from engine.execution.ray_executor import RayExecutor
from engine.plan.planner import make_plan
from engine.report.survey import survey
from engine.runs.runner import run
from tests.data import small_recipe, spurious_table, write_shards
from tests.unit.engine.runs.test_full_chain import CHAIN
from tests.unit.engine.runs.test_run import changed, computed, content

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]


NEIGHBOURS = ("neighbour_ids", "neighbour_distances")


SEVERAL_PASSES = {"split": {"method": "random"}}
"""Beside the default operators; with all methods the test takes minutes."""


@pytest.mark.parametrize("chain", [SEVERAL_PASSES, pytest.param(CHAIN, marks=pytest.mark.slow)])
def test_ray_publishes_what_one_process_publishes(
    chain: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default operators, or every method in one recipe; on Ray, classes are also clustered in blocks."""
    monkeypatch.setattr("engine.runs.plugins.report.write_report", lambda *_: None)  # its survey follows
    operators = {**chain, "neighbours": {"eps": 0.05, "metric": "cosine"}}
    recipe = small_recipe(tmp_path, shards=3, output="alone", operators=operators)
    alone = run(recipe)
    operators["groups"] = {**recipe.operators["groups"], "block_rows": 50}
    settings = {"executor": "ray", "shards_in_flight": 2}
    on_ray = small_recipe(tmp_path, shards=3, output="ray", operators=operators, run=settings)
    assert content(run(on_ray).path) == content(alone.path)
    here, there = (make_plan(made).reader() for made in (recipe, on_ray))
    for shard in range(3):
        found = here.read(shard, NEIGHBOURS)
        assert found.equals(there.read(shard, NEIGHBOURS))
        assert sum(map(len, found.column("neighbour_ids").to_pylist())) > found.num_rows
    surveys = [survey(make_plan(on_ray), executor) for executor in (LocalExecutor(), RayExecutor())]
    assert surveys[0].cells
    assert repr(surveys[0]) == repr(surveys[1])  # of the report


def test_errors_of_rows_reach_the_driver(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, shards=4, run={"executor": "ray"})
    table = spurious_table()
    values = table.column("a").to_pylist()
    values[130] = float("inf")
    place = table.schema.get_field_index("a")
    write_shards(tmp_path / "data", table.set_column(place, "a", pa.array(values)))
    with pytest.raises(InputError, match=r"s2\.parquet.*'a' is infinite"):
        run(recipe)


@pytest.mark.slow
def test_asking_for_too_much_is_refused_before_it_hangs(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, shards=4, run={"executor": "ray"})
    with pytest.raises(
        InfeasibleError, match=r"operators\.gradients asks for 1 GPU .* has 0.*resources\.gpus=0"
    ):
        run(changed(recipe, gradients={"resources": {"gpus": 1}}))
    with pytest.raises(InfeasibleError, match=r"operators\.probe.* 99 CPUs .* has 4"):
        run(changed(recipe, probe={"trainer": "ray", "l2": 0.1, "resources": {"cpus": 99}}))
    result = run(recipe)
    assert computed(result)["probe"] == 0
