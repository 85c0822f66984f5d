"""``dckm`` on Ray: the bytes of one process, however many workers."""

from pathlib import Path

import pytest

from engine.execution.local_executor import LocalExecutor
from engine.execution.ray_executor import RayExecutor
from operators.base import Context, Executor
from operators.dckm.adaptor import Dckm
from operators.dckm.params import DckmParams
from tests.unit.in_memory import MemoryReader, split_table
from tests.unit.operators.dckm.test_dckm_operator import features, files

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]


@pytest.mark.slow
def test_any_number_of_workers_leaves_the_same_bytes(tmp_path: Path) -> None:
    tables = split_table(features(), [10, 25, 60, 60, 100])
    operator = Dckm(DckmParams(n_clusters=3, init="k-means++", coding="standardize", max_iter=3))
    executors: dict[str, Executor] = {
        "alone": LocalExecutor(),
        "one": RayExecutor(1),
        "three": RayExecutor(3),
    }
    found = {}
    for name, executor in executors.items():
        state = tmp_path / name
        state.mkdir()
        operator.fit(Context(MemoryReader(tables), state, {}, 1), executor)
        found[name] = files(state)
    assert len(found["alone"]) == 5 + 2
    assert found["one"] == found["alone"]
    assert found["three"] == found["alone"]
