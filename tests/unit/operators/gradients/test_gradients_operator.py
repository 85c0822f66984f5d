"""The gradients operator: a probe's folder and a shard in, a vector column out."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, cast

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError

from engine.execution.local_executor import LocalExecutor
from operators.base import Context, OperatorError, ShardInfo
from operators.columns import numpy_to_vectors, vectors_to_numpy
from operators.factored import unpack
from operators.factored.packed_rows import read_parts
from operators.gradients import Projection, per_sample_gradients
from operators.gradients.adaptor import Gradients, _draw, _Opened
from operators.gradients.params import GradientsParams
from operators.hashing import draw_rows
from operators.models import ModelSpec, build, load, save


class Shards:
    """Shards as tables."""

    def __init__(self, tables: list[pa.Table]) -> None:
        self._tables = tables
        self.shards = [ShardInfo(i, f"{i}", 0, len(table), 0) for i, table in enumerate(tables)]

    def read(self, shard: int, columns: list[str]) -> pa.Table:
        return self._tables[shard].select(["row_id", *columns])

    read_source = read


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
    (tmp_path / "own").mkdir()
    return Context(NoShards(), tmp_path / "own", {"probe": tmp_path / "probe"}, seed=7)


def shard(n: int) -> tuple[np.ndarray, np.ndarray, pa.Table]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = rng.integers(0, 2, n).astype(np.int32)
    return X, y, pa.table({"row_id": np.arange(n), "x": numpy_to_vectors(X), "y": y})


@pytest.mark.parametrize("projection", [None, 5, {"dim": 5, "method": "tensor_sketch"}])
def test_adds_the_kernels_gradients(context: Context, projection: object) -> None:
    X, y, table = shard(11)
    params = GradientsParams(
        parameters="hidden1", projection=projection, chunk_size=4, route="layers", bias="plain"
    )
    operator = Gradients(params)
    out = operator.open(context)(table)
    assert out.schema.equals(pa.schema(operator.adds))
    method = "tensor_sketch" if isinstance(projection, dict) else "gaussian"
    expected = per_sample_gradients(
        load(context.states["probe"]),
        X,
        y,
        parameters="hidden1",
        chunk_size=4,
        projection=Projection(5, 7, method) if projection else None,
    )
    np.testing.assert_array_equal(vectors_to_numpy(out.column("gradient")), expected)


@pytest.mark.parametrize("form", ["flat", "factored"])
@pytest.mark.parametrize(("given", "on_gpu", "rows"), [(None, 0, 512), (None, 1, None), (7, 0, 7), (7, 1, 7)])
def test_a_gpu_has_chunks_of_its_own_unless_the_recipe_says(
    form: Literal["flat", "factored"],
    given: int | None,
    on_gpu: int,
    rows: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int | None] = []

    def gradients(*rows: object, chunk_size: int | None, **options: object) -> object:
        asked.append(chunk_size)
        return np.zeros((11, 2), np.float32), []

    monkeypatch.setattr("operators.gradients.kernel.per_sample_gradients", gradients)
    monkeypatch.setattr("operators.gradients.factoring.packed_gradients", gradients)
    model = SimpleNamespace(parameters=lambda: iter([SimpleNamespace(is_cuda=bool(on_gpu))]))
    _Opened(cast(torch.nn.Module, model), None, 2, 0)(
        shard(11)[2], GradientsParams(chunk_size=given, form=form)
    )
    assert asked == [rows]


def test_projection_in_a_recipe() -> None:
    short, long = GradientsParams(projection=256), GradientsParams(projection={"dim": 256})
    accepted = GradientsParams(projection={"dim": 256, "accept_error": True})
    assert short == long != accepted
    # Accepting the error changes no value: it is no part of a fingerprint.
    assert short.model_dump() == accepted.model_dump()
    assert pickle.loads(pickle.dumps(accepted)) == accepted
    with pytest.raises(ValidationError, match="gaussian"):
        GradientsParams(projection={"dim": 3, "method": "sparse"})
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        GradientsParams(projection=0)


@pytest.mark.parametrize("cuts", [[], [250], [10, 20, 30, 299, 300, 301, 302, 303, 304, 305]])
def test_the_sample_does_not_depend_on_shards_or_the_order_of_classes(
    context: Context, cuts: list[int]
) -> None:
    """Every second row has the other class, and inputs that are ten times as long."""
    rng = np.random.default_rng(0)
    y = (np.arange(4000) % 2).astype(np.int32)
    X = (rng.normal(size=(4000, 3)) * np.where(y == 1, 10, 1)[:, None]).astype(np.float32)
    table = pa.table({"row_id": np.arange(4000), "x": numpy_to_vectors(X), "y": y})
    edges = [0, *cuts, 4000]
    parts = [table.slice(first, last - first) for first, last in pairwise(edges)]
    Gradients(GradientsParams(bias="balanced")).fit(replace(context, shards=Shards(parts)), LocalExecutor())
    found = json.loads((context.state / "bias.json").read_text())
    chosen = X[draw_rows(np.arange(4000), 512, 7, "gradients/sample")].astype(np.float64)
    assert 0.45 < (np.linalg.norm(chosen, axis=1) > 5).mean() < 0.55
    assert found["hidden1"] == pytest.approx(np.sqrt((chosen**2).sum(axis=1).mean()))


def test_a_sample_is_found_where_most_rows_are_rejected(context: Context) -> None:
    table = shard(10_000)[2].filter(pa.array(np.arange(10_000) % 400 == 0))

    shards = Shards([table])
    shards.shards = [ShardInfo(0, "0.csv", 0, 10_000, 0)]
    found = _draw(replace(context, shards=shards), LocalExecutor(), 20)
    assert found.num_rows == 20


def test_a_projection_without_two_rows_of_a_class_has_no_error(
    context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    context = replace(context, shards=Shards([shard(1)[2]]))
    params = GradientsParams(projection=3, bias="plain")
    assert Gradients(params).fit(context, LocalExecutor()) == {"projection_pairs": 0}
    assert "no two of 1 rows drawn at random have the same class" in caplog.text
    assert "nan" not in caplog.text


@pytest.mark.parametrize("accept", [False, True])
def test_fit_measures_a_projection(
    context: Context, accept: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, table = shard(40)
    parts = [table.slice(0, 15), table.slice(15, 25)]
    context = replace(context, shards=Shards(parts))
    params = GradientsParams(projection={"dim": 3, "accept_error": accept}, chunk_size=64, bias="plain")
    found = Gradients(params).fit(context, LocalExecutor())
    model = load(context.states["probe"])
    flat = per_sample_gradients(model, X, y).astype(np.float64)
    low = per_sample_gradients(model, X, y, projection=Projection(3, 7)).astype(np.float64)
    pairs = [(i, j) for i in range(40) for j in range(i) if y[i] == y[j]]
    errors = [abs(cosine(low, y, i, j) - cosine(flat, y, i, j)) for i, j in pairs]
    assert found["projection_pairs"] == len(errors)
    np.testing.assert_allclose(found["projection_error_mean"], np.mean(errors), rtol=1e-4)
    np.testing.assert_allclose(found["projection_error_p99"], np.quantile(errors, 0.99), rtol=1e-4)
    assert ("groups may differ from those of the gradients" in caplog.text) == (not accept)
    record = json.loads((context.state / "projection.json").read_text())
    assert record == {"dim": 3, "method": "gaussian", **found}
    assert Gradients(GradientsParams(bias="plain")).fit(context, LocalExecutor()) == {}
    # A sample: the rows with the smallest hashes.
    monkeypatch.setattr("operators.gradients.adaptor.SAMPLE_ROWS", 20)
    classes = y[draw_rows(np.arange(40), 20, 7, "gradients/sample")]
    fewer = sum(k * (k - 1) // 2 for k in np.bincount(classes).tolist())
    assert Gradients(params).fit(context, LocalExecutor())["projection_pairs"] == fewer


def cosine(rows: np.ndarray, y: np.ndarray, i: int, j: int) -> float:
    mean = rows[y == y[i]].mean(axis=0)
    a, b = rows[i] - mean, rows[j] - mean
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_factored_gradients_stand_in_a_column_of_their_own(context: Context) -> None:
    X, y, table = shard(30)
    context = replace(context, shards=Shards([table.slice(0, 0), table.slice(0, 11), table.slice(11)]))
    operator = Gradients(GradientsParams(form="factored", chunk_size=4, bias="plain"))
    figures = operator.fit(context, LocalExecutor())
    assert figures == {"numbers_per_row": (3 + 4) + (4 + 2)}
    out = operator.open(context)(table)
    assert out.schema.equals(pa.schema(operator.adds))
    found = unpack(vectors_to_numpy(out.column("gradient_factors")), read_parts(context.state))
    model = load(context.states["probe"])
    flat = per_sample_gradients(model, X, y, chunk_size=4)
    np.testing.assert_allclose(found.flat(), flat, atol=1e-5 * np.linalg.norm(flat, axis=1).max())
    empty = operator.open(context)(table.slice(0, 0))
    assert empty.num_rows == 0
    assert empty.schema.equals(out.schema)


def test_what_has_no_factors_is_named(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    context = replace(context, shards=Shards([shard(8)[2]]))
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    monkeypatch.setattr("operators.models.load", lambda folder: model)
    params = GradientsParams(form="factored", bias="plain")
    with pytest.raises(OperatorError, match=r"'1\.weight', '1\.bias' are not products.*\{form: flat\}"):
        Gradients(params).fit(context, LocalExecutor())
    head = GradientsParams(form="factored", parameters="^2", bias="plain")
    assert Gradients(head).fit(context, LocalExecutor()) == {"numbers_per_row": 4 + 2}
    hooked = torch.nn.Sequential(torch.nn.Linear(3, 2))
    hooked[0].register_forward_hook(lambda module, args, output: 2 * output)
    monkeypatch.setattr("operators.models.load", lambda folder: hooked)
    with pytest.raises(OperatorError, match=r"'0\.weight', '0\.bias' are not products"):
        Gradients(params).fit(context, LocalExecutor())


def test_factors_are_neither_projected_nor_taken_by_func() -> None:
    with pytest.raises(ValidationError, match="projection is set"):
        GradientsParams(form="factored", projection=16)
    with pytest.raises(ValidationError, match="route is func"):
        GradientsParams(form="factored", route="func")


def test_a_shard_without_valid_rows(context: Context) -> None:
    out = Gradients(GradientsParams(bias="plain")).open(context)(shard(0)[2])
    assert out.num_rows == 0
    assert out.schema.equals(pa.schema(Gradients(GradientsParams()).adds))


def test_bad_parameters(context: Context) -> None:
    with pytest.raises(OperatorError, match=r"operators\.gradients\.parameters: .*hidden1\.weight"):
        Gradients(GradientsParams(parameters="encoder", bias="plain")).open(context)
    apply = Gradients(GradientsParams(bias="plain")).open(context)
    with pytest.raises(OperatorError, match=r"operators\.gradients: y\[1\] = 9, but the model has 2 logits"):
        apply(shard(2)[2].set_column(2, "y", pa.array([0, 9])))
    with pytest.raises(ValidationError, match="not a regular expression"):
        GradientsParams(parameters="(")


@pytest.mark.parametrize("pattern", ["(?=head)", r"(h)\1", "\ud800", "(?:x{1000}){1000}"])
def test_a_pattern_that_takes_more_than_linear_time_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError, match="parameters"):
        GradientsParams(parameters=pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(?:" * 20 + "[a-z0-9.]+" + ")+" * 20 + "!", "(" * 5000 + "!" + ")" * 5000, "a{99999999999999999999}"],
)
def test_a_hostile_pattern_ends(pattern: str, context: Context) -> None:
    """Python's own took years for the first, and ended in RecursionError and OverflowError for the others."""
    with pytest.raises(OperatorError, match=r"matches no trainable parameter.*hidden1\.weight"):
        Gradients(GradientsParams(parameters=pattern, bias="plain")).open(context)


def test_planning_does_not_import_torch() -> None:
    code = "import sys, operators.gradients.adaptor, operators.models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("form", ["flat", "factored"])
@pytest.mark.parametrize("parameters", [None, "head", "weight"])
def test_balanced_biases_are_as_long_as_what_enters_their_layer(
    context: Context, form: Literal["flat", "factored"], parameters: str | None
) -> None:
    X, y, table = shard(40)
    context = replace(context, shards=Shards([table.slice(0, 25), table.slice(25)]))
    model = load(context.states["probe"])
    plain = per_sample_gradients(model, X, y, parameters=parameters).astype(np.float64)
    scale = np.ones(plain.shape[1])
    if parameters != "weight":  # a bias that is not chosen stays as it is
        hidden = np.maximum(X @ model[1].weight.detach().numpy().T + model[1].bias.detach().numpy(), 0)
        lengths = [np.sqrt((inputs.astype(np.float64) ** 2).sum(axis=1).mean()) for inputs in (X, hidden)]
        start = 0
        for name, parameter in model.named_parameters():
            if parameters is None or parameters in name:
                stop = start + parameter.numel()
                scale[start:stop] = lengths["head" in name] if "bias" in name else 1
                start = stop
    params = GradientsParams(form=form, parameters=parameters, chunk_size=7)
    operator = Gradients(params)
    operator.fit(context, LocalExecutor())
    found = operator.open(context)(table)
    rows = vectors_to_numpy(found.column(0).combine_chunks())
    if form == "factored":
        rows = unpack(rows, read_parts(context.state)).flat()
    expected = plain * scale
    # Columns come in another order; products of rows are the same.
    np.testing.assert_allclose(rows.astype(np.float64) @ rows.T, expected @ expected.T, rtol=1e-4, atol=1e-6)
    assert rows.shape == plain.shape
