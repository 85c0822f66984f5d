"""``eos`` on Ray: the same bytes as in one process, for any number of workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.execution.local_executor import LocalExecutor
from engine.execution.ray_executor import RayExecutor
from operators.base import Context, Executor, Resources
from operators.eos.adaptor import Eos, EosByProbe
from operators.eos.params import EosParams
from operators.probe.adaptor import Probe
from operators.probe.params import ProbeParams
from tests.cluster.test_probe_train import MemoryReader as Unnumbered

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]


class MemoryReader(Unnumbered):
    """With row ids, as shards on disk."""

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        first = self.shards[shard].first_row
        ids = pa.array(range(first, first + 60), pa.int64())
        return super().read(shard, columns).append_column("row_id", ids)


def fit(operator: Eos, folder: Path, executor: Executor) -> tuple[dict[str, bytes], dict[str, float]]:
    ingest = folder.parent / "ingest"
    ingest.mkdir(exist_ok=True)
    (ingest / "classes.json").write_text(json.dumps({"classes": ["a", "b", "c"], "counts": [100, 100, 100]}))
    folder.mkdir()
    states = {"ingest": ingest, "probe": folder.parent / "probe"}
    metrics = operator.fit(Context(MemoryReader(), folder, states, seed=1), executor)
    return {path.name: path.read_bytes() for path in folder.iterdir()}, metrics


@pytest.mark.slow
@pytest.mark.parametrize("params", [{}, {"model": "spa", "alpha": 0.3, "n_init": 2}])
def test_sums_are_the_same_to_the_byte(tmp_path: Path, params: dict[str, Any]) -> None:
    local = fit(Eos(EosParams(**params)), tmp_path / "local", LocalExecutor())
    one = EosParams(**params, resources=Resources(cpus=4))
    assert fit(Eos(one), tmp_path / "one", RayExecutor()) == local
    assert fit(Eos(EosParams(**params)), tmp_path / "four", RayExecutor()) == local
    assert set(local[0]) == {"eos.json", "models.npz"}


@pytest.mark.slow
def test_the_probe_is_the_same_to_the_byte(tmp_path: Path) -> None:
    found = []
    for name, options in (("task", {"trainer": "in_process"}), ("two", {"trainer": "ray", "workers": 2})):
        probe = Probe(ProbeParams(l2=0.1, **options))
        if not found:
            fit(probe, tmp_path / "probe", RayExecutor())  # type: ignore[arg-type]
        alone = EosByProbe(EosParams(model="probe", max_iter=5, start="random", n_init=2))
        found.append(fit(alone.in_chain([probe, alone]), tmp_path / name, RayExecutor()))
    assert found[0] == found[1]
    assert set(found[0][0]) == {"eos.json", "model.json", "model.safetensors"}
