"""Workers, actors, a node and the driver die while a run goes on Ray: nothing is lost, nothing done twice."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from connectors.storage import ObjectPath
from engine.core.errors import InfeasibleError
from engine.execution.job import Failure, Job
from engine.execution.node_health import disks_of_nodes, trouble_of_cluster
from engine.execution.ray_executor import RayExecutor
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from engine.storage.lease import hold_lease
from engine.storage.run_store import Commit
from operators.base import Context
from tests.cluster.striking import Greedy, KeptOpen, Striking, StrikingParams, take_gigabytes, workers_of
from tests.data import recipe_for, small_recipe, spurious_table, write_shards
from tests.faults.killing import complete, published, recipe_in, run_and_kill
from tests.s3 import S3Server
from tests.unit.engine.runs.test_run import content

pytestmark = [pytest.mark.cluster]


def many_shards(folder: Path, output: str, shards: int = 12, **sections: Any) -> dict[str, Any]:
    """A recipe over so many shards that something can happen in between."""
    if not (folder / "data").exists():
        write_shards(folder / "data", spurious_table(), shards)
    return recipe_for(folder / "data", folder / output, **sections)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("kind", [pytest.param(Striking, marks=pytest.mark.faults), KeptOpen])
def test_workers_that_die_at_their_work(kind: type[Striking], tmp_path: Path) -> None:
    """Tasks and actors: every shard is committed once, those of the dead too."""
    recipe = small_recipe(tmp_path, shards=4)
    run(recipe)
    plan = make_plan(recipe)
    (tmp_path / "marks").mkdir()
    operator = kind(StrikingParams(marks=str(tmp_path / "marks"), row_ids=(70, 200)))
    with hold_lease(plan.output, "test") as lease:
        context = Context(plan.reader(), plan.store.state("struck"))
        job = Job(operator, context, plan.reader(), "struck", lease)
        found = list(RayExecutor().apply(job, range(4)))
    assert sorted(entry.shard for entry in found) == [0, 1, 2, 3]
    assert all(isinstance(entry, Commit) for entry in found)
    assert {mark.name for mark in (tmp_path / "marks").iterdir()} == {"70", "200"}
    assert sum(commit.rows for commit in plan.store.committed("struck").values()) == 240


@pytest.mark.usefixtures("ray_cluster")
def test_silence_names_the_operator_and_the_knob(tmp_path: Path) -> None:
    executor = RayExecutor(no_progress_seconds=1)
    executor.operator = "groups"
    with pytest.raises(
        InfeasibleError, match=r"operators\.groups made no.* 1 seconds.*no_progress_seconds=2"
    ):
        list(executor.map(time.sleep, [8.0, 8.0]))


@pytest.mark.usefixtures("ray_cluster")
def test_a_worker_takes_no_more_memory_than_the_driver_allows(tmp_path: Path) -> None:
    """The policy of the driver comes with the work; its error is a value, and the worker lives on."""
    plan = make_plan(small_recipe(tmp_path, shards=2))
    run(small_recipe(tmp_path, shards=2))
    most = 2**30
    operator = Greedy(StrikingParams(marks=str(tmp_path), row_ids=()))
    with hold_lease(plan.output, "test") as lease:
        context = Context(plan.reader(), plan.store.state("greedy"))
        job = Job(operator, context, plan.reader(), "greedy", lease, max_bytes=most)
        found = list(RayExecutor().apply(job, range(2)))
    assert all(isinstance(entry, Failure) and entry.kind == "resources" for entry in found)
    assert "1,024 MiB on this installation" in str(found)
    assert plan.store.committed("greedy") == {}
    with pytest.raises(MemoryError):
        list(RayExecutor(max_bytes=most).map(take_gigabytes, [3]))


@pytest.mark.usefixtures("ray_cluster")
def test_every_node_says_how_full_its_disk_is() -> None:
    (found,) = disks_of_nodes()
    assert found.host == socket.gethostname()
    assert 0 < found.free <= found.total
    assert trouble_of_cluster() == ""


@pytest.mark.faults
@pytest.mark.usefixtures("ray_cluster")
def test_workers_killed_from_outside(tmp_path: Path) -> None:
    """A busy worker is killed now and then, as often as one task is retried; the bytes are the same."""
    alone = run(Recipe.parse(many_shards(tmp_path, "alone")))
    recipe = Recipe.parse(many_shards(tmp_path, "killed", run={"executor": "ray", "shards_in_flight": 2}))
    over, killed = threading.Event(), list[int]()

    def kill_some() -> None:
        while len(killed) < 3 and not over.wait(1.5):
            for pid in workers_of(os.getpid())[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    thread = threading.Thread(target=kill_some)
    thread.start()
    try:
        result = run(recipe)
    finally:
        over.set()
        thread.join()
    assert content(result.path) == content(alone.path)
    assert killed


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_a_lost_node(tmp_path: Path) -> None:
    alone = run(Recipe.parse(many_shards(tmp_path, "alone")))
    command = [sys.executable, "-m", "tests.cluster.lose_node", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith('{"lost"'))
    found = json.loads(line)
    assert found["lost"]
    assert content(Path(found["version"])) == content(alone.path)


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_the_same_bytes_whatever_is_in_flight(tmp_path: Path) -> None:
    """16 shards, 1, 3 and 16 of them in flight; the probe on one worker and on two, and in this process."""
    write_shards(tmp_path / "data", spurious_table(), 16)
    alone = run(Recipe.parse(many_shards(tmp_path, "alone", operators={"probe": {"l2": 0.05}})))
    command = [sys.executable, "-m", "tests.cluster.in_flight", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1180)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith('{"versions"'))
    found = json.loads(line)["versions"]
    assert len(found) == 3
    for way, version in found.items():
        assert content(Path(version)) == content(alone.path), way


@pytest.mark.faults
@pytest.mark.usefixtures("ray_cluster")
def test_an_output_on_s3_has_the_same_bytes(s3: S3Server, tmp_path: Path) -> None:
    """States that a fit leaves and the columns of others travel through the store; workers fetch them."""
    alone = run(Recipe.parse(many_shards(tmp_path, "alone", shards=4)))
    there = many_shards(tmp_path, "none", shards=4, run={"executor": "ray", "shards_in_flight": 3})
    result = run(Recipe.parse(there | {"output": {"path": s3.uri(s3.bucket(), "out")}}))
    data = result.path / "data"
    assert isinstance(data, ObjectPath)
    parts = {path.name: path.read_bytes() for path in data.below()}
    assert parts == {path.name: path.read_bytes() for path in (alone.path / "data").iterdir()}


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_killed_driver(tmp_path: Path) -> None:
    """Ray's processes of a killed driver go by themselves; its workers commit nothing under a new writer."""
    reference = published(run(Recipe.parse(recipe_in(tmp_path, "alone"))).path.parent.parent)
    for events in (40, 90):
        recipe = recipe_in(tmp_path, f"ray{events}", run={"executor": "ray", "cpus": 4})
        assert run_and_kill(tmp_path, recipe, events)
        assert complete(tmp_path, recipe, reference)
