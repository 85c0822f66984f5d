"""Predictions over shards on Ray have the bytes of those of one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.execution.local_executor import LocalExecutor
from engine.execution.ray_executor import RayExecutor
from engine.training import registration
from engine.training.serving.prediction import predict
from engine.training.serving.prediction_source import SourceRequest
from tests.data import write_shards
from tests.unit.engine.training.conftest import few_code_files
from tests.unit.engine.training.serving.test_served_model import model, raw_table  # noqa: F401
from tests.unit.few_trees import learn_from_few_trees

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]


@pytest.fixture(scope="module", autouse=True)
def quickly_made_model() -> Iterator[None]:
    """The model is made in this process, and is read from its folder alone."""
    with learn_from_few_trees(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration, "code_paths", few_code_files)
        yield


def test_workers_write_the_same_bytes(model: Path, tmp_path: Path) -> None:  # noqa: F811
    write_shards(tmp_path / "in", raw_table(seed=2), 4)
    here = predict(
        str(model), SourceRequest(str(tmp_path / "in"), keep=["age"]), str(tmp_path / "a"), LocalExecutor()
    )
    there = predict(
        str(model), SourceRequest(str(tmp_path / "in"), keep=["age"]), str(tmp_path / "b"), RayExecutor(2)
    )
    assert [part["sha256"] for part in there.parts] == [part["sha256"] for part in here.parts]
    assert (there.rows, there.failed) == (here.rows, here.failed) == (400, 0)
