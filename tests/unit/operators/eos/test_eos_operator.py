"""The operator ``eos`` over shards: the kernel's weights, however the rows are cut, and as part of a run."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.special import logsumexp

from engine.execution.local_executor import LocalExecutor
from operators.base import Context, OperatorError, Resources
from operators.columns import numpy_to_vectors
from operators.eos import EntropicOutlierSparsification
from operators.eos.adaptor import Eos, EosByProbe, learner_of
from operators.eos.alpha import choose_alpha, effective_sample_size_curve
from operators.eos.kernel import random_rows, random_weights
from operators.eos.memory import Rows, fitted, losses, weights
from operators.eos.params import EosParams
from operators.eos.probe_job import IdentifiedShards
from operators.eos.sharded import Passes, Request, Source, runs_of
from operators.eos.state import Scorer
from operators.hashing import END, row_hashes
from operators.models import load
from operators.probe.adaptor import Probe
from operators.probe.params import ProbeParams
from operators.probe.scoring import predict
from operators.registry import operator_class
from operators.report import ReportFigure
from tests.unit.in_memory import MemoryReader, run_operator, split_table

CLASSES = ["a", "b", "c"]
SUMS = ["gaussian", "kmeans", "least_squares", "spa", "loss"]
Floats = npt.NDArray[np.float64]


def dataset(n: int = 400, seed: int = 0) -> pa.Table:
    """Three classes, the last rare; 5 % of the rows are far away."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=[0.5, 0.4, 0.1]).astype(np.int32)
    X = rng.normal(size=(n, 4)) + 4 * y[:, None]
    far = rng.random(n) < 0.05
    X[far] += rng.uniform(8, 12, (int(far.sum()), 4))
    loss = rng.exponential(size=n) + 20 * far
    return pa.table(
        {
            "x": numpy_to_vectors(X.astype(np.float32)),
            "gradient": numpy_to_vectors((X * 2 + 1).astype(np.float32)),
            "y": y,
            "loss": loss.astype(np.float32),
            "far": far,
        }
    )


def ingested(folder: Path, table: pa.Table) -> dict[str, Path]:
    """The state of ``ingest``."""
    counts = np.bincount(table["y"].to_numpy(), minlength=3).tolist() if table.num_rows else [0, 0, 0]
    (folder / "ingest").mkdir(exist_ok=True)
    (folder / "ingest" / "classes.json").write_text(json.dumps({"classes": CLASSES, "counts": counts}))
    return {"ingest": folder / "ingest"}


def run(table: pa.Table, cuts: Sequence[int] = (), **params: Any) -> tuple[pa.Table, dict[str, float]]:
    with TemporaryDirectory() as folder:
        state = Path(folder) / "eos"
        state.mkdir()
        tables = split_table(table, cuts)
        return run_operator(Eos(EosParams(**params)), tables, state, 7, ingested(Path(folder), table))


def expected_weights(table: pa.Table, params: EosParams) -> Floats:
    """The kernel on all rows of each class, or of all classes, at once; weights of mean 1."""
    operator = Eos(params)
    values = table.column(operator.column).to_pylist()
    X = np.array(values, np.float32).reshape(table.num_rows, -1)
    labels = table["y"].to_numpy()
    y: Any = {"spa": labels, "least_squares": np.eye(3)[labels]}.get(params.model)
    parts = [labels == k for k in range(3)] if operator.by_class else [labels >= 0]
    found = np.zeros(len(X))
    for part in parts:
        ids = np.flatnonzero(part)
        rows = Rows(X[part], None if y is None else y[part], np.ones(len(ids)), ids)
        learner = learner_of(params, 3)
        alpha = (
            choose_alpha(
                effective_sample_size_curve(rows, learner, seed=7), params.efficiency, params.most_flagged
            )
            if params.alpha == "auto"
            else params.alpha
        )
        draws = [None if params.start == "uniform" and not i else 7 + i for i in range(params.n_init)]
        fit = fitted(rows, learner, alpha, draws=draws, seed=7, tol=params.tol, max_iter=params.max_iter)
        found[part] = weights(fit.model, fit.statistics, rows) * len(ids)
    return found


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_the_operator_and_the_estimator_flag_the_same_rows_by_default(share: float) -> None:
    rng = np.random.default_rng(3)
    is_far = np.arange(1000) >= round((1 - share) * 1000)
    X = np.where(is_far[:, None], rng.uniform(1, 6, (1000, 10)), rng.normal(size=(1000, 10)))
    table = pa.table({"x": numpy_to_vectors(X.astype(np.float32)), "y": np.zeros(1000, np.int32)})
    estimator = EntropicOutlierSparsification(random_state=0).fit(X)
    mask = run(table, by_class=False)[0]["eos_outlier"].to_numpy()
    assert (mask == estimator.outlier_mask_).mean() >= 0.998
    assert mask.mean() == pytest.approx(share, abs=0.01)


def test_the_sample_of_alpha_is_independent_of_the_validation_rows() -> None:
    ids = np.arange(10_000)
    validation = np.argsort(row_hashes(ids, 7))[:1000]
    sample = random_rows(ids, 1000, 7)
    # 100 rows are expected in both, with a standard deviation below 10.
    assert 50 < len(np.intersect1d(validation, sample)) < 150
    assert abs(np.corrcoef(row_hashes(ids, 7) / END, random_weights(ids, 7))[0, 1]) < 0.05


@pytest.mark.parametrize("model", SUMS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 0.5},
        {"alpha": 0.3, "by_class": False},
        {"alpha": 0.7, "start": "random", "n_init": 2},
        {"alpha": 0.4, "features": "gradient"},
    ],
)
def test_weights_are_the_kernels(model: str, options: dict[str, Any]) -> None:
    try:
        params = EosParams.model_validate({"model": model, **options})
    except ValidationError:
        pytest.skip("not a parameter of this model")
    table = dataset()
    found, metrics = run(table, [50, 50, 170, 390], model=model, **options)
    expected = expected_weights(table, params)
    np.testing.assert_allclose(found["eos_weight"].to_numpy(), expected, rtol=2e-4, atol=1e-9)
    mask = found["eos_outlier"].to_numpy()
    np.testing.assert_array_equal(mask, expected < 0.01)
    assert metrics["outliers"] == mask.sum()
    assert metrics["effective_sample_size"] == pytest.approx(
        expected.sum() ** 2 / (expected @ expected), rel=1e-4
    )
    assert found.schema == pa.schema(list(Eos(params).adds))


@settings(max_examples=10)
@given(cuts=st.lists(st.integers(0, 200), max_size=6), model=st.sampled_from(SUMS))
def test_shards_do_not_matter(cuts: list[int], model: str) -> None:
    table = dataset(200)
    one, first = run(table, model=model, alpha=0.3)
    other, second = run(table, cuts, model=model, alpha=0.3)
    np.testing.assert_allclose(
        one["eos_weight"].to_numpy(), other["eos_weight"].to_numpy(), rtol=1e-4, atol=1e-30
    )
    assert one["eos_outlier"].equals(other["eos_outlier"])
    assert first.keys() == second.keys()
    for name in first.keys() - {"iterations"}:
        assert first[name] == pytest.approx(second[name], rel=1e-6)


def test_far_rows_are_found_and_a_rare_class_is_not_lost() -> None:
    table = dataset(2000)
    found, metrics = run(table, [700])
    far, mask, y = table["far"].to_numpy(), found["eos_outlier"].to_numpy(), table["y"].to_numpy()
    assert (mask & far).sum() >= 0.95 * far.sum()
    assert (mask & ~far).sum() <= 0.01 * len(far)
    for k in range(3):
        assert found["eos_weight"].to_numpy()[y == k].mean() == pytest.approx(1, abs=1e-5)
    assert metrics["converged"] == 1
    assert metrics["collapsed"] == 0


def test_the_state_holds_the_curve_and_loads_without_pickle(tmp_path: Path) -> None:
    table, state = dataset(), tmp_path / "eos"
    state.mkdir()
    run_operator(Eos(EosParams()), [table], state, 0, ingested(tmp_path, table))
    found = json.loads((state / "eos.json").read_text())
    assert set(found["curve"]) == set(found["objective"]) == {"0", "1", "2"}
    for points in found["curve"].values():
        assert points[0]["alpha"] > points[-1]["alpha"]
        assert points[0]["effective_share"] > points[-1]["effective_share"]
    again = Scorer.load(state)
    X, labels = np.array(table["x"].to_pylist()), table["y"].to_numpy()
    for key, values in found["objective"].items():
        model, statistics = again.models[int(key)], again.statistics[int(key)]
        scaled = -losses(model, X[labels == int(key)], None) / statistics.alpha
        assert values[-1] == pytest.approx(model.penalty - statistics.alpha * logsumexp(scaled), rel=1e-5)
    again.save(tmp_path, {})
    assert (tmp_path / "models.npz").read_bytes() == (state / "models.npz").read_bytes()


def test_given_losses_have_no_penalty() -> None:
    table = dataset()
    metrics = run(table, model="loss", by_class=False, alpha=2.0)[1]
    scaled = -table["loss"].to_numpy().astype(np.float64) / 2.0
    assert metrics["objective"] == pytest.approx(-2.0 * logsumexp(scaled), rel=1e-6)


def test_the_report_draws_the_curve_of_what_fit_wrote(tmp_path: Path) -> None:
    table, state = dataset(), tmp_path / "state"
    state.mkdir()
    operator = Eos(EosParams())
    _, metrics = run_operator(operator, [table], state, 0, ingested(tmp_path, table))
    context: Any = SimpleNamespace(state=state, metrics=metrics, classes=CLASSES)
    section = operator.report_section(context)
    assert section is not None
    assert any(isinstance(item, ReportFigure) for item in section.content)


def test_a_class_that_appears_later_weighs_one(tmp_path: Path) -> None:
    table = dataset().filter(pa.compute.less(dataset()["y"], 2))
    (tmp_path / "eos").mkdir()
    states = ingested(tmp_path, table)
    context = Context(MemoryReader([table]), tmp_path / "eos", states, 0)
    operator = Eos(EosParams())
    operator.fit(context, LocalExecutor())
    late = table.slice(0, 5).set_column(2, "y", pa.array([2] * 5, pa.int32()))
    late = late.append_column("row_id", pa.array(range(5), pa.int64()))
    assert operator.open(context)(late)["eos_weight"].to_pylist() == [1] * 5


def many_classes(n_classes: int, n: int, d: int) -> pa.Table:
    """Rows of normal distributions, one for each class."""
    rng = np.random.default_rng(1)
    y = (np.arange(n) % n_classes).astype(np.int32)
    X = rng.normal(size=(n, d)) + 3 * rng.normal(size=(n_classes, d))[y]
    return pa.table({"x": numpy_to_vectors(X.astype(np.float32)), "y": y})


def test_alpha_of_many_classes_is_chosen_on_more_rows_than_features() -> None:
    # 4,096 rows of 100 classes would be 64 of each, and a Gaussian of 64 features follows every one of them.
    found, metrics = run(many_classes(64, 64 * 160, 64), [3000])
    assert metrics["collapsed"] == metrics["too_small"] == 0
    assert metrics["outliers"] < 20
    assert found["eos_weight"].to_numpy().max() < 6


def test_classes_with_too_few_rows_for_their_model_weigh_one(caplog: pytest.LogCaptureFixture) -> None:
    table = many_classes(5, 120, 40)
    found, metrics = run(table, [50])
    assert (metrics["outliers"], metrics["too_small"], metrics["effective_sample_size"]) == (0, 5, 120)
    assert found["eos_weight"].to_pylist() == [1.0] * 120
    assert "5 classes have too few rows to choose alpha (class 0 has 24)" in caplog.text
    section = Eos(EosParams()).report_section(
        SimpleNamespace(state=Path("missing"), metrics=metrics, classes=CLASSES)  # type: ignore[arg-type]
    )
    assert section is not None
    assert "EOS has too few rows of 5 classes" in section.findings[0].text


def test_no_rows_are_named(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"operators.eos: there are no valid rows"):
        run(dataset().slice(0, 0))


def test_collapse_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    metrics = run(dataset(), alpha=0.01)[1]
    assert metrics["collapsed"] >= 1
    assert "class 0: EOS weights have collapsed: at alpha = 0.01" in caplog.text


def test_losses_that_are_not_finite_are_named() -> None:
    table = dataset().set_column(3, "loss", pa.array([np.inf] * 400, pa.float32()))
    with pytest.raises(OperatorError, match="have a loss that is not finite"):
        run(table, model="loss", alpha=1.0)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"model": "spa", "by_class": False}, "by_class is not read by model: spa"),
        ({"n_clusters": 3}, "n_clusters is not read by model: gaussian"),
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"alpha": "best"}, "alpha"),
        ({"threshold": 1.0}, "threshold"),
    ],
)
def test_bad_parameters_are_named(params: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        EosParams.model_validate(params)


def test_runs_cover_all_shards_in_order() -> None:
    for n in (1, 5, 64, 65, 1000):
        runs = runs_of(n)
        assert [shard for run in runs for shard in run] == list(range(n))
        assert len(runs) == min(n, 64)
        assert max(map(len, runs)) - min(map(len, runs)) <= 1


def by_probe(
    folder: Path, table: pa.Table, cuts: Sequence[int], probe: ProbeParams, **params: Any
) -> tuple[pa.Table, dict[str, float], dict[str, Any]]:
    """Probe, then EOS around it."""
    states, tables = ingested(folder, table), split_table(table, cuts)
    for name in ("probe", "eos"):
        (folder / name).mkdir()
    trained = Probe(probe)
    run_operator(trained, tables, folder / "probe", 1, states)
    alone = operator_class("eos").variant({"model": "probe"})(EosParams(model="probe", **params))
    operator = alone.in_chain([trained, alone])
    found, metrics = run_operator(operator, tables, folder / "eos", 1, states | {"probe": folder / "probe"})
    return found, metrics, json.loads((folder / "eos" / "eos.json").read_text())


def mislabelled(n: int = 400) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Two classes far apart; every tenth label is wrong."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 3)) + 4 * y[:, None]
    wrong = np.arange(n) % 10 == 0
    labels = np.where(wrong, 1 - y, y).astype(np.int32)
    return pa.table({"x": numpy_to_vectors(X.astype(np.float32)), "y": labels}), wrong


def test_the_probe_finds_wrong_labels(tmp_path: Path) -> None:
    table, wrong = mislabelled()
    found, metrics, record = by_probe(tmp_path, table, [100, 250], ProbeParams(l2=0.01))
    mask, weight = found["eos_outlier"].to_numpy(), found["eos_weight"].to_numpy()
    assert metrics["outliers"] == mask.sum()
    assert weight.mean() == pytest.approx(1, abs=1e-5)
    assert weight[wrong].mean() < 0.1
    assert mask[~wrong].mean() <= 0.03
    assert record["objective"]["-1"][-1] == pytest.approx(
        objective_of(tmp_path / "eos", table, metrics["least_alpha"], 0.01), rel=1e-5
    )
    assert len(record["curve"]["-1"]) > 5


def test_shards_do_not_matter_to_the_probe(tmp_path: Path) -> None:
    table, _ = mislabelled()
    found = []
    for name, cuts in (("one", []), ("more", [10, 10, 200, 390])):
        (tmp_path / name).mkdir()
        found.append(by_probe(tmp_path / name, table, cuts, ProbeParams(l2=0.05))[0])
    np.testing.assert_allclose(*(part["eos_weight"].to_numpy() for part in found), rtol=1e-3, atol=1e-9)
    assert found[0]["eos_outlier"].equals(found[1]["eos_outlier"])


def test_the_probes_draws_are_by_row_id(tmp_path: Path) -> None:
    reader = Filtered(split_table(mislabelled(60)[0], [25]))
    shards = IdentifiedShards(reader)
    assert [len(shards[i]) for i in range(2)] == [16, 24]
    assert [*shards.ids[0], *shards.ids[1]] == [i for i in range(60) if i % 3]


class Filtered(MemoryReader):
    """Leaves out every third row, as if it were rejected."""

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        table = super().read(shard, columns)
        return table.filter(pa.array(table["row_id"].to_numpy() % 3 != 0))


class Counting(LocalExecutor):
    """Keeps how many results of ``map`` were alive when the next was asked for."""

    def __init__(self) -> None:
        self.alive = 0
        self.found: list[weakref.ref[Any]] = []

    def map(self, fn: Any, items: Sequence[Any], *, resources: Any = None) -> Iterator[Any]:
        for item in items:
            self.alive = max(self.alive, sum(part() is not None for part in self.found))
            result = fn(item)
            self.found.append(weakref.ref(result[0].sums))
            yield result
            del result


def test_the_sums_of_a_pass_are_merged_as_they_arrive() -> None:
    table = dataset(300)
    reader = MemoryReader(split_table(table, list(range(10, 300, 10))))
    passes = Passes(Source(reader, "x", False, "none", 3), Counting(), Resources())
    X = np.array(table["x"].to_pylist(), np.float32)
    model = learner_of(EosParams(), 3).start(X, None, np.ones(300), 0)
    (found,) = passes.collect([Request(-1, model, 0.5, None)])
    assert found.prior == 300
    assert passes.executor.alive <= 2  # type: ignore[attr-defined]


def objective_of(state: Path, table: pa.Table, alpha: float, l2: float) -> float:
    """The objective at the stored model: its losses, the optimum over the weights, and what training adds."""
    model = load(state)
    features = np.array(table["x"].to_pylist(), np.float32)
    loss = predict(model, features, table["y"].to_numpy().astype(np.int64))[1].astype(np.float64)
    matrices = [p.detach().double() for p in model.parameters() if p.requires_grad and p.ndim > 1]
    penalty = l2 / 2 * sum(float(p.square().sum()) for p in matrices)
    return float(-alpha * logsumexp(-loss / alpha) + penalty)


def test_a_network_keeps_the_best_of_its_trainings(tmp_path: Path) -> None:
    table, wrong = mislabelled(200)
    probe = ProbeParams(model="mlp", hidden=(8,), epochs=5, l2=0.01, lr=0.01)
    found, metrics, record = by_probe(tmp_path, table, [80], probe, max_iter=4, start="random", n_init=2)
    last = objective_of(tmp_path / "eos", table, metrics["least_alpha"], 0.01)
    assert record["objective"]["-1"][-1] == pytest.approx(last, rel=1e-5)
    assert found["eos_weight"].to_numpy()[wrong].mean() < 0.6


def test_the_model_probe_needs_a_probe() -> None:
    with pytest.raises(OperatorError, match="the recipe has no probe"):
        EosByProbe(EosParams(model="probe")).in_chain([])
