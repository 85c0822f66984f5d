"""The probe operator in this process: shards in, a state and two columns out."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from operators.base import Context, OperatorError, Resources, ShardInfo, ShardReader
from operators.columns import numpy_to_vectors
from operators.groups.params import JttParams
from operators.models import ModelSpec, load
from operators.probe import Settings, predict, train
from operators.probe.adaptor import Probe
from operators.probe.job import CachedShards
from operators.probe.params import ProbeParams
from operators.probe.rows import Rows


@dataclass
class MemoryReader:
    """Shards of a table in memory; counts what is read."""

    tables: list[pa.Table]
    reads: int = 0

    @property
    def shards(self) -> list[ShardInfo]:
        return [ShardInfo(i, f"memory-{i}", 0, t.num_rows, 0) for i, t in enumerate(self.tables)]

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        self.reads += 1
        return self.tables[shard].select(columns)

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        raise AssertionError


class Local:
    """Runs at once, on what a cluster would get: a pickled copy."""

    kind: Literal["local", "ray"] = "local"

    def map(
        self, fn: Callable[[Any], Any], items: Sequence[Any], *, resources: Resources | None = None
    ) -> Iterator[Any]:
        return (fn(pickle.loads(pickle.dumps(item))) for item in items)


def shard(n: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n).astype(np.int32)
    X = rng.normal(size=(n, 4)).astype(np.float32) + y[:, None]
    return pa.table({"row_id": np.arange(n), "x": numpy_to_vectors(X), "y": y})


def rows_of(table: pa.Table) -> Rows:
    return CachedShards(MemoryReader([table]))[0]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    ingest = tmp_path / "ingest"
    ingest.mkdir()
    (ingest / "classes.json").write_text(json.dumps({"classes": ["a", "b", "c"], "counts": [1, 1, 1]}))
    reader = MemoryReader([shard(40, 0), shard(0, 1), shard(25, 2)])
    return Context(reader, tmp_path / "state", {"ingest": ingest}, seed=4)


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_fit_and_open_are_the_kernel(context: Context, model: str) -> None:
    operator = Probe(ProbeParams(model=model, hidden=(5,), epochs=3, l2=0.1, batch_size=16))
    metrics = operator.fit(context, Local())
    trained_model = load(context.state)
    spec_text = (context.state / "model.json").read_text()
    tables = context.shards.tables
    settings = Settings(l2=0.1, epochs=3, batch_size=16)
    spec = ModelSpec.model_validate_json(spec_text)
    assert (spec.model, spec.n_features, spec.n_classes, spec.standardize) == (model, 4, 3, True)
    expected = train(spec, [rows_of(table) for table in tables], settings=settings, seed=4)
    assert metrics == {
        "train_loss": expected.train_loss,
        "train_accuracy": expected.train_accuracy,
        "n_parameters": expected.n_parameters,
        "converged": 1.0,
    }
    record = json.loads((context.state / "training.json").read_text())
    assert record["loss_curve"] == expected.loss_curve
    assert record["converged"] is True
    assert record["n_rows"] == 65
    assert {p.name for p in context.state.iterdir()} == {"model.safetensors", "model.json", "training.json"}

    apply = operator.open(context)
    for table in tables:
        out = apply(table)
        assert out.schema.equals(pa.schema(operator.adds))
        rows = rows_of(table)
        prediction, loss = predict(trained_model, rows.X, rows.y)
        np.testing.assert_array_equal(out.column("prediction"), prediction)
        np.testing.assert_allclose(out.column("loss"), loss, rtol=1e-5)  # logistic: float64 in NumPy


def test_a_solver_that_does_not_converge_is_logged(
    context: Context, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "of", lambda params: Settings(l2=params.l2, max_iterations=1))
    assert Probe(ProbeParams(l2=0.001)).fit(context, Local())["converged"] == 0
    assert "operators.probe: the solver stopped before the logistic model converged" in caplog.text


def test_states_are_the_same_bytes_twice(context: Context) -> None:
    for name in ("a", "b"):
        Probe(ProbeParams(model="mlp", epochs=2)).fit(replace(context, state=context.state / name), Local())
    for file in ("model.safetensors", "model.json", "training.json"):
        assert (context.state / "a" / file).read_bytes() == (context.state / "b" / file).read_bytes()


def test_memory_between_passes_is_bounded(context: Context) -> None:
    reader = context.shards
    one_shard = CachedShards(reader, budget=40 * 4 * 4)
    for _ in range(3):
        for i in range(3):
            assert len(one_shard[i]) == reader.tables[i].num_rows
    # Shard 0 fills the budget and shard 1 has no rows: only shard 2 is read again.
    assert reader.reads == 1 + 1 + 3


def test_ray_without_ray(context: Context) -> None:
    with pytest.raises(OperatorError, match=r"operators\.probe\.trainer is 'ray'.*in_process"):
        Probe(ProbeParams(trainer="ray")).fit(context, Local())


def test_auto_stays_in_process_without_ray(context: Context) -> None:
    Probe(ProbeParams(small_rows=0)).fit(context, Local())
    assert (context.state / "model.safetensors").exists()


def test_bad_data(context: Context) -> None:
    empty = replace(context, shards=MemoryReader([shard(0, 0)]))
    with pytest.raises(OperatorError, match="none of the 1 shards has a valid row"):
        Probe(ProbeParams()).fit(empty, Local())
    (context.states["ingest"] / "classes.json").write_text(json.dumps({"classes": ["a"], "counts": [1]}))
    with pytest.raises(OperatorError, match="at least two"):
        Probe(ProbeParams()).fit(context, Local())


@pytest.mark.parametrize(
    "bad", [{"l2": -1}, {"hidden": (0,)}, {"model": "forest"}, {"trainer": "rai"}, {"x": 1}]
)
def test_bad_parameters(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ProbeParams(**bad)


def test_planning_imports_neither_torch_nor_ray() -> None:
    code = "import sys, operators.probe.adaptor; sys.exit('torch' in sys.modules or 'ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("params", "in_one_task"),
    [
        (ProbeParams(), 2_000_000),
        (ProbeParams(model="mlp"), 200_000),
        (ProbeParams(small_rows=10), 10),
        (JttParams(), 200_000),
    ],
)
def test_a_model_that_is_solved_trains_in_one_task_up_to_more_rows(
    params: ProbeParams, in_one_task: int
) -> None:
    for n_rows, on_ray in [(in_one_task, False), (in_one_task + 1, True)]:
        shards = SimpleNamespace(shards=[SimpleNamespace(n_rows=n_rows)])
        assert params.wants_ray(cast(ShardReader, shards)) is on_ray
