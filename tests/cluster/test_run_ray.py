"""Whole runs on Ray: the same bytes as in this process, whatever the parallelism."""

from pathlib import Path

import pytest

from engine.errors import InfeasibleError, InputError
from engine.runner import run
from tests.data import small_recipe
from tests.unit.test_run import changed, computed, content

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]


def test_ray_publishes_what_one_process_publishes(tmp_path: Path) -> None:
    alone = run(small_recipe(tmp_path, output="alone"))
    for limit in (1, 3):
        settings = {"executor": "ray", "shards_in_flight": limit}
        together = run(small_recipe(tmp_path, output=f"ray{limit}", run=settings))
        assert content(together.path) == content(alone.path)


def test_errors_of_rows_reach_the_driver(tmp_path: Path) -> None:
    recipe = small_recipe(
        tmp_path, run={"executor": "ray"}, source={"features": ["a", "truth"]}, truth={"group": None}
    )
    with pytest.raises(InputError, match="'truth'"):
        run(recipe)


def test_asking_for_too_much_is_refused_before_it_hangs(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, run={"executor": "ray"})
    with pytest.raises(
        InfeasibleError, match=r"operators\.gradients asks for 1 GPU .* has 0.*resources\.gpus=0"
    ):
        run(changed(recipe, gradients={"resources": {"gpus": 1}}))
    with pytest.raises(InfeasibleError, match=r"operators\.probe.* 99 CPUs .* has 4"):
        run(changed(recipe, probe={"trainer": "ray", "l2": 0.1, "resources": {"cpus": 99}}))
    result = run(recipe)
    assert computed(result)["probe"] == 0
