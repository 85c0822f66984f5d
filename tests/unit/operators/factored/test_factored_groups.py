"""Group inference on factored gradients: the groups of the flat ones, to the label."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import InputError
from engine.plan.model import Plan
from engine.plan.planner import make_plan
from engine.publish.results import RunResult
from engine.runs.runner import run
from operators.base import Context, OperatorError
from operators.columns import numpy_to_vectors, vectors_to_numpy
from operators.factored import FactoredGradients, Layer
from operators.gradients.adaptor import Gradients
from operators.gradients.params import GradientsParams
from operators.gradients.report import centred_cosines
from operators.grasp import GroupInference
from operators.grasp.adaptor import Groups
from operators.grasp.class_model import FactoredModel, load_model
from operators.grasp.params import GroupsParams
from operators.planes import plane_of_products, principal_plane
from tests.data import cut, small_recipe
from tests.on_arrays import place_rows
from tests.unit.in_memory import PicklingExecutor, SortedReader
from tests.unit.operators.factored.test_factored_dbscan import head_gradients

GRID: dict[str, Any] = {"eps_grid": [0.1, 0.3, 0.5], "min_samples_grid": [5, 10, 20], "random_state": 0}


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from(["euclidean", "cosine", "centered_cosine"]))
def test_groups_and_places_of_new_rows_are_those_of_the_flat_ones(seed: int, metric: Any) -> None:
    gradients, y = head_gradients(seed, 400), np.random.default_rng(seed).integers(0, 2, 400)
    known, new = np.arange(300), np.arange(300, 400)
    flat = gradients.flat().astype(np.float64)
    ours = GroupInference(metric, **GRID).fit(gradients[known], y[known])
    theirs = GroupInference(metric, **GRID).fit(flat[known], y[known])
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    for value in (0, 1):
        mine, other = ours.selection_[value], theirs.selection_[value]
        assert (mine.eps, mine.min_samples) == (other.eps, other.min_samples)
        np.testing.assert_allclose(mine.scores, other.scores, atol=1e-6)
    np.testing.assert_array_equal(ours.predict(gradients[new], y[new]), theirs.predict(flat[new], y[new]))


@pytest.mark.parametrize("metric", ["cosine", "centered_cosine"])
def test_a_stored_model_places_the_same(metric: Any, tmp_path: Path) -> None:
    gradients = head_gradients(0, 300)
    both = FactoredGradients(
        [*gradients.layers, Layer(np.ones((300, 2)), gradients.layers[0].errors, True, False)]
    )
    inference = GroupInference(metric, **GRID, min_rows=0).fit(both, np.zeros(300))
    model = inference.models_[0.0]
    model.save(tmp_path / "model.npz")
    stored = load_model(tmp_path / "model.npz")
    assert isinstance(stored, FactoredModel)
    assert (stored.metric, stored.eps) == (model.metric, model.eps)
    np.testing.assert_array_equal(stored.assign(both), model.assign(both))
    core = inference.labels_ >= 0
    assert np.mean(stored.assign(both)[core] == inference.labels_[core]) > 0.99
    none = FactoredModel(metric, 0.1, None, both[:0], np.empty(0, np.int32))
    assert set(none.assign(both)) == {-1}


def test_rows_whose_gradients_are_equal_are_one_group() -> None:
    rows = FactoredGradients([Layer(np.tile([1.0, 2.0], (30, 1)), np.tile([0.5, -0.5], (30, 1)))])
    # Without an error a gradient is zero, whatever the activation.
    zero = FactoredGradients([Layer(np.random.default_rng(0).normal(size=(30, 2)), np.zeros((30, 2)))])
    for gradients in (rows, zero):
        inference = GroupInference(**GRID).fit(gradients, np.zeros(30))
        assert set(inference.labels_) == {0}
        assert set(inference.predict(head_gradients(0, 5, 2, 2), np.zeros(5))) == {0}


def test_what_factored_gradients_cannot_be_given_to() -> None:
    gradients, y = head_gradients(0, 40), np.zeros(40)
    with pytest.raises(ValueError, match="neighbours='exact'"):
        GroupInference(neighbours="hnsw").fit(gradients, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        GroupInference().fit(gradients, y[:7])
    fitted = GroupInference(**GRID).fit(gradients, y)
    with pytest.raises(ValueError, match="given factored gradients, these are flat"):
        fitted.predict(gradients.flat(), y)
    gradients.layers[0].errors[3] = np.inf
    with pytest.raises(ValueError, match="gradients: row 3 of layer 0"):
        fitted.predict(gradients, y)


FORMS: dict[str, dict[str, Any]] = {"flat": {}, "factored": {"form": "factored"}}
Done = dict[str, tuple[RunResult, Plan]]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Whole runs on an MLP's gradients in either form."""
    found = {}
    probe = {"model": "mlp", "hidden": [5], "epochs": 3, "trainer": "in_process"}
    for form, params in FORMS.items():
        operators = {"probe": probe, "gradients": params, "split": {"fit_on": "all"}}
        report = {"enabled": form == "factored"}
        recipe = small_recipe(tmp_path_factory.mktemp(form), operators=operators, report=report)
        found[form] = run(recipe), make_plan(recipe)
    return found


def test_a_run_on_factors_publishes_what_one_on_flat_gradients_does(done: Done) -> None:
    (ours, _), (theirs, _) = done["factored"], done["flat"]
    expected = pq.read_table(theirs.path / "data")
    assert len(set(expected.column("group").to_pylist())) > 2
    assert pq.read_table(ours.path / "data").equals(expected)
    figures = [{o.name: o.metrics for o in result.operators} for result in (ours, theirs)]
    assert figures[0]["groups"] == pytest.approx(figures[1]["groups"], abs=1e-4)
    assert ours.report is not None
    assert ours.report.read_text().count("Maps of the rows of class") == 2
    assert figures[0]["gradients"] == {"numbers_per_row": (5 + 5) + (6 + 2)}  # 1 for each bias


@pytest.mark.parametrize("n_shards", [1, 3])
def test_labels_do_not_depend_on_the_shards(n_shards: int, done: Done, tmp_path: Path) -> None:
    plan = done["factored"][1]
    reader = plan.reader()
    table = pa.concat_tables([reader.read(s, ["y", "gradient_factors"]) for s in range(len(plan.shards))])
    published = pq.read_table(done["flat"][0].path / "data").column("group").to_numpy()
    chain = [Gradients(GradientsParams(form="factored")), Groups(GroupsParams(min_samples=[5, 10]))]
    operator = chain[1].in_chain(chain)
    assert operator.uses == ("ingest", "gradients")
    states = {name: plan.store.state(plan.fingerprint_of(name)) for name in operator.uses}
    shards = SortedReader(cut(table, n_shards)[::-1])
    context = Context(shards, tmp_path, states, plan.recipe.seed)
    operator.fit(context, PicklingExecutor())  # type: ignore[arg-type]
    found = operator.open(context)(table)
    np.testing.assert_array_equal(found.column("group").to_numpy(), published)


def test_new_rows_are_placed_by_the_state_alone(done: Done, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    new = pa.table(
        {
            "x": numpy_to_vectors(random.normal(0, 2, (200, 4)).astype(np.float32)),
            "y": random.integers(0, 2, 200).astype(np.int32),
        }
    )
    placed = {}
    for form, (_, plan) in done.items():
        own, probe = (plan.store.state(plan.fingerprint_of(name)) for name in ("gradients", "probe"))
        context = Context(plan.reader(), own, {"probe": probe})
        gradients = Gradients(GradientsParams(**FORMS[form])).open(context)(new)
        rows = gradients.append_column("y", new.column("y"))
        state = plan.store.state(plan.fingerprint_of("groups"))
        placed[form] = place_rows(state, rows)
    assert placed["factored"].equals(placed["flat"])
    assert len(set(placed["flat"].column("group").to_pylist())) > 2
    narrow = numpy_to_vectors(vectors_to_numpy(rows.column("gradient_factors"))[:, :3])
    with pytest.raises(OperatorError, match="another probe"):
        place_rows(state, rows.set_column(0, "gradient_factors", narrow))


@pytest.mark.parametrize("n", [1, 2, 40, 300])
def test_the_report_draws_the_plane_of_the_flat_rows(n: int) -> None:
    gradients, weights = head_gradients(2, n), np.random.default_rng(2).random(n)
    flat = gradients.flat().astype(np.float64)
    flat -= np.average(flat, axis=0, weights=weights)
    norms = np.linalg.norm(flat, axis=1, keepdims=True)
    flat /= np.where(norms > 1e-9, norms, np.inf)
    points, explained = plane_of_products(centred_cosines(gradients, weights))
    expected, shares = principal_plane(flat)
    np.testing.assert_allclose(points, expected, atol=1e-6)
    np.testing.assert_allclose(explained, shares, atol=1e-6)


def test_what_cannot_read_factors_is_refused_when_planning(tmp_path: Path) -> None:
    def planned(**operators: Any) -> None:
        make_plan(small_recipe(tmp_path, operators={"gradients": {"form": "factored"}, **operators}))

    with pytest.raises(InputError, match=r"operators\.groups: needs.*`gradients: \{form: flat\}`"):
        planned(groups={"method": "kmeans"})
    with pytest.raises(InputError, match=r"operators\.neighbours: needs.*`gradients: \{form: flat\}`"):
        planned(neighbours={"eps": 0.1})
    with pytest.raises(InputError, match=r"operators\.groups\.neighbours: ivf.*`gradients: \{form: flat\}`"):
        planned(groups={"neighbours": "ivf"})
    with pytest.raises(InputError, match="projection is set"):
        planned(gradients={"form": "factored", "projection": 8})
    planned(groups={"method": "jtt"})


@pytest.mark.slow
def test_groups_know_that_gradients_are_projected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recipe = small_recipe(tmp_path, operators={"gradients": {"projection": 2}}, report={"enabled": True})
    result = run(recipe)
    plan = make_plan(recipe)
    record = json.loads((plan.store.state(plan.fingerprint_of("groups")) / "selection.json").read_text())
    metrics = {operator.name: operator.metrics for operator in result.operators}
    assert record["projection"] == {"dim": 2, "method": "gaussian", **metrics["gradients"]}
    for name in ("projection_error_mean", "projection_error_p99"):
        assert metrics["groups"][name] == metrics["gradients"][name] > 0
    assert "eps was picked on projected gradients" in caplog.text
    assert result.report is not None
    assert "picked on projected gradients" in result.report.read_text()
    accepted = {"gradients": {"projection": {"dim": 2, "accept_error": True}}}
    accepting = run(small_recipe(tmp_path, operators=accepted, report={"enabled": True}))
    assert accepting.version == result.version  # the report alone is drawn again
    assert accepting.report is not None
    assert "picked on projected gradients" not in accepting.report.read_text()


def test_an_accepted_error_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    for accept in (False, True):
        projection = {"dim": 2, "accept_error": accept}
        chain = [Gradients(GradientsParams(projection=projection)), Groups(GroupsParams())]
        caplog.clear()
        chain[1].in_chain(chain)._warn([], {"projection_error_mean": 0.1})
        assert ("off by 0.100" in caplog.text) == (not accept)
