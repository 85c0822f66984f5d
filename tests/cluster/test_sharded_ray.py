"""DBSCAN in blocks on Ray: the kernel's labels with one worker or two, and when workers are killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.execution.ray_executor import RayExecutor
from operators.base import Resources
from operators.dbscan.kernel import cluster
from operators.points import Points
from tests.unit.operators.dbscan.sharded.test_sharded import blobs, in_blocks

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]

EPS, MIN_SAMPLES = [0.3, 0.6, 1.0], [4, 20]


@pytest.fixture(scope="module")
def problem() -> tuple[Any, Any]:
    X = blobs(500, 6, 0.6)
    return X, cluster(Points(X, "euclidean"), EPS, MIN_SAMPLES)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_labels_of_the_kernel(workers: int, problem: tuple[Any, Any]) -> None:
    X, expected = problem
    map_ = partial(RayExecutor().map, resources=Resources(actors=workers))
    found = in_blocks(X, "euclidean", EPS, MIN_SAMPLES, 170, map_)
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found[0])) > 5


KILLS = {"search": "before", "link": "after"}


class Killing:
    """Kills its own worker the first time a function runs: before the work, or after its files are there."""

    def __init__(self, folder: Path, name: str, fn: Callable[[Any], Any]) -> None:
        self.folder, self.name, self.fn = folder, name, fn

    def __call__(self, item: Any) -> Any:
        self._strike("before")
        result = self.fn(item)
        self._strike("after")
        return result

    def _strike(self, when: str) -> None:
        mark = self.folder / self.name
        if KILLS[self.name] == when and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_killed_workers_change_nothing(tmp_path: Path, problem: tuple[Any, Any]) -> None:
    X, expected = problem

    def killing(fn: Any, items: Sequence[Any]) -> Iterator[Any]:
        name = getattr(fn, "_fn", fn).func.__name__
        return RayExecutor().map(Killing(tmp_path, name, fn) if name in KILLS else fn, items)

    found = in_blocks(X, "euclidean", EPS, MIN_SAMPLES, 170, killing)
    np.testing.assert_array_equal(found, expected)
    assert {mark.name for mark in tmp_path.iterdir()} == set(KILLS)


@pytest.mark.slow
def test_rows_that_exceed_the_object_store(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.cluster.small_store", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert int(words[1]) > int(words[3])
    assert int(words[5]) >= 2
