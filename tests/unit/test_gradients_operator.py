"""The gradients operator: a probe's folder and a shard in, a vector column out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from operators.base import Context, OperatorError
from operators.columns import numpy_to_vectors, vectors_to_numpy
from operators.gradients import Projection, per_sample_gradients
from operators.gradients.adaptor import Gradients
from operators.gradients.params import GradientsParams
from operators.models import ModelSpec, build, load, save


class NoShards:
    """The operator only ever sees the tables it is given."""

    shards = ()

    def read(self, shard: int, columns: object) -> pa.Table:
        raise AssertionError

    read_source = read


@pytest.fixture
def context(tmp_path: Path) -> Context:
    spec = ModelSpec(model="mlp", hidden=(4,), n_features=3, n_classes=2)
    save(build(spec, 0), spec, tmp_path / "probe")
    return Context(NoShards(), tmp_path / "own", {"probe": tmp_path / "probe"}, seed=7)


def shard(n: int) -> tuple[np.ndarray, np.ndarray, pa.Table]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = rng.integers(0, 2, n).astype(np.int32)
    return X, y, pa.table({"row_id": np.arange(n), "x": numpy_to_vectors(X), "y": y})


@pytest.mark.parametrize("projection", [None, 5])
def test_adds_the_kernels_gradients(context: Context, projection: int | None) -> None:
    X, y, table = shard(11)
    operator = Gradients(GradientsParams(parameters="hidden1", projection=projection, chunk_size=4))
    out = operator.open(context)(table)
    assert out.schema.equals(pa.schema(operator.adds))
    expected = per_sample_gradients(
        load(context.states["probe"]),
        X,
        y,
        parameters="hidden1",
        chunk_size=4,
        projection=Projection(projection, 7) if projection else None,
    )
    np.testing.assert_array_equal(vectors_to_numpy(out.column("gradient")), expected)


def test_a_shard_without_valid_rows(context: Context) -> None:
    out = Gradients(GradientsParams()).open(context)(shard(0)[2])
    assert out.num_rows == 0
    assert out.schema.equals(pa.schema(Gradients(GradientsParams()).adds))


def test_bad_parameters(context: Context) -> None:
    with pytest.raises(OperatorError, match=r"operators\.gradients\.parameters: .*hidden1\.weight"):
        Gradients(GradientsParams(parameters="encoder")).open(context)
    with pytest.raises(ValidationError, match="no regular expression"):
        GradientsParams(parameters="(")


def test_planning_does_not_import_torch() -> None:
    code = "import sys, operators.gradients.adaptor, operators.models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
