"""Probe training on Ray: a task, one worker and two workers leave the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from operators.base import Context, OperatorError, Resources, ShardInfo
from operators.columns import numpy_to_vectors
from operators.probe.adaptor import Probe
from operators.probe.params import ProbeParams

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]
FILES = ("model.safetensors", "model.json", "training.json")


@dataclass(frozen=True)
class MemoryReader:
    """Five shards that every worker can make for itself."""

    label_offset: int = 0

    @property
    def shards(self) -> list[ShardInfo]:
        return [ShardInfo(i, f"memory-{i}", 60 * i, 60, 0) for i in range(5)]

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        rng = np.random.default_rng(shard)
        y = rng.integers(0, 3, 60).astype(np.int32)
        X = (rng.normal(size=(60, 20)) + y[:, None]).astype(np.float32)
        table = pa.table({"x": numpy_to_vectors(X), "y": y + self.label_offset})
        return table.select(columns)

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        raise AssertionError


class Tasks:
    """Ray tasks, one after the other."""

    kind: Literal["local", "ray"] = "ray"

    def map(
        self, fn: Callable[[Any], Any], items: Sequence[Any], *, resources: Resources | None = None
    ) -> Iterator[Any]:
        import ray

        return (ray.get(ray.remote(fn).remote(item)) for item in items)


def fit(folder: Path, name: str, reader: MemoryReader = MemoryReader(), **params: Any) -> dict[str, float]:
    ingest = folder / "ingest"
    ingest.mkdir(exist_ok=True)
    (ingest / "classes.json").write_text(json.dumps({"classes": ["a", "b", "c"], "counts": [1, 1, 1]}))
    context = Context(reader, folder / name, {"ingest": ingest}, seed=1)
    return Probe(ProbeParams(**params)).fit(context, Tasks())


def test_logistic_is_the_same_to_the_byte(tmp_path: Path) -> None:
    task = fit(tmp_path, "task", trainer="in_process")
    two = fit(tmp_path, "two", trainer="auto", small_rows=299, workers=2)
    assert task == two
    for file in FILES:
        expected = (tmp_path / "task" / file).read_bytes()
        assert (tmp_path / "two" / file).read_bytes() == expected
    assert {path.name for path in (tmp_path / "two").iterdir()} == set(FILES)


def test_mlp_is_the_same_to_the_byte(tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": "mlp", "hidden": (8,), "epochs": 4, "batch_size": 32}
    task = fit(tmp_path, "task", trainer="in_process", **options)
    two = fit(tmp_path, "two", trainer="ray", workers=2, **options)
    assert task == two
    for file in FILES:
        assert (tmp_path / "two" / file).read_bytes() == (tmp_path / "task" / file).read_bytes()


def test_what_a_worker_finds_wrong_reaches_the_user(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"Shard 0 has the class index .*Ingest again"):
        fit(tmp_path, "bad", MemoryReader(label_offset=1), trainer="ray", workers=1)
    assert not list((tmp_path / "bad").iterdir())
    huge = Resources(cpus=64)
    with pytest.raises(OperatorError, match="64 CPUs"):
        fit(tmp_path, "huge", trainer="ray", resources=huge)
