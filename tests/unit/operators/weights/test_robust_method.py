"""``weights: {method: robust}``: every class the same sum, a capped ratio, enough effective rows."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.core.errors import InputError
from engine.plan.planner import make_plan
from operators.base import DUPLICATE_OF, GROUP, IS_OUTLIER, LABEL, WEIGHT, OperatorParams
from operators.cues.adaptor import Cues
from operators.cues.params import CuesParams
from operators.duplicates.params import DuplicatesParams
from operators.weights.adaptor import Weights
from operators.weights.class_limits import ClassLimits, balance_classes
from operators.weights.classes import class_totals, rare_class_sentence, strength_sentence
from operators.weights.params import WeightsParams
from operators.weights.row_weights import Factors, Scales
from tests.data import small_recipe
from tests.unit.in_memory import run_operator, split_table


class Factor:
    """Stands for an operator that adds a weight."""

    name, params, uses = "cues", OperatorParams(), ()
    adds = (pa.field("cues_weight", pa.float32()),)


def as_table(y: Any, factor: Any, outlier: Any = None) -> pa.Table:
    y = np.asarray(y)
    return pa.table(
        {
            LABEL: pa.array(y, pa.int32()),
            GROUP: pa.array(y, pa.int32()),
            IS_OUTLIER: pa.array(np.zeros(len(y), bool) if outlier is None else outlier),
            "cues_weight": pa.array(np.asarray(factor), pa.float32()),
        }
    )


def cue_state(strength: float, *, follows: bool = True) -> str:
    return json.dumps({"class_strength": strength, "blend": float(follows), "slice_blend": 0.0})


def weigh(
    tables: list[pa.Table], strength: float = 1.0, *, follows: bool = True, **params: Any
) -> tuple[Any, dict[str, float]]:
    operator = Weights(WeightsParams.model_validate(params)).in_chain([Factor()])  # type: ignore[list-item]
    with TemporaryDirectory() as folder:
        state, ingest, cues = (Path(folder) / name for name in ("weights", "ingest", "cues"))
        for path in (state, ingest, cues):
            path.mkdir()
        record = {"classes": ["a", "b", "c", "d"], "counts": [0, 0, 9, 125]}
        (ingest / "classes.json").write_text(json.dumps(record))
        (cues / "cues.json").write_text(cue_state(strength, follows=follows))
        found, metrics = run_operator(operator, tables, state, states={"ingest": ingest, "cues": cues})
    return found[WEIGHT].to_numpy().astype(np.float64), metrics


def test_marked_rows_of_a_rare_class_weigh_no_more_than_those_of_the_largest() -> None:
    y = np.repeat([0, 1, 2], [600, 300, 100])
    outlier = np.zeros(1000, bool)
    outlier[[0, 650, 950, 951]] = True
    table = as_table(y, np.ones(1000), outlier)
    for cuts in ([], [10, 960]):
        weight, _ = weigh(split_table(table, cuts), follows=False)
        assert weight.mean() == pytest.approx(1.0, rel=1e-6)
        for c in (0, 1, 2):
            assert np.ptp(weight[(y == c) & ~outlier]) == 0.0
        assert weight[-1] == pytest.approx(6 * weight[1], rel=1e-6)
        assert weight[outlier] == pytest.approx(weight[1], rel=1e-6)
    followed, _ = weigh([table])
    assert followed[950] == followed[999]
    assert weigh([table], 0.0, follows=False)[0] == pytest.approx(1.0)
    dropped, _ = weigh([table], follows=False, drop_outliers=True)
    assert (dropped[outlier] == 0).all()


def test_the_limit_of_a_marked_row_is_explained(tmp_path: Path) -> None:
    limits = ClassLimits({0: 0.5, 1: 4.0}, {0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}, 20.0)
    scales = Scales(None, None, 2.0, Factors(("cues_weight",), ("",)), limits, marked_at_most=0.5)
    scales.save(tmp_path)
    loaded = Scales.load(tmp_path)
    assert loaded == scales
    facts = {
        marked: {fact.name: fact.value for fact in loaded.explain(as_table([1], [1.0], [marked]), tmp_path)}
        for marked in (True, False)
    }
    assert facts[True]["weight of a marked row"] == 0.5
    assert "weight of a marked row" not in facts[False]
    assert loaded.open(tmp_path)(as_table([1, 1], [1.0, 1.0], [True, False]))[0].tolist() == [1.0, 8.0]


rows = st.lists(
    st.tuples(st.integers(0, 3), st.floats(0, 1e6, width=32), st.booleans()), min_size=1, max_size=60
)


@given(
    found=rows,
    cap=st.floats(1, 50),
    share=st.floats(0.05, 1),
    drop=st.booleans(),
    cuts=st.sets(st.integers(1, 59)),
)
def test_the_limits_hold_in_every_class(
    found: list[Any], cap: float, share: float, drop: bool, cuts: set[int]
) -> None:
    y, factor, outlier = (np.array(column) for column in zip(*found, strict=True))
    table = as_table(y, factor, outlier)
    weight, metrics = weigh(
        split_table(table, sorted(cuts)),
        cap=cap,
        min_effective_share=share,
        drop_outliers=drop,
        min_class_rows=1,
    )
    kept = ~outlier if drop else np.ones(len(y), bool)
    assert np.isfinite(weight).all()
    assert (weight[~kept] == 0).all()
    classes = np.unique(y[kept])
    for c in classes:
        w = weight[kept & (y == c)]
        even = kept.sum() / (len(classes) * len(w))
        assert w.mean() == pytest.approx(even, rel=1e-4)
        assert w.min() >= 0
        assert w.max() <= cap * even * (1 + 1e-4)
        assert w.sum() ** 2 / (w**2).sum() >= share * len(w) * (1 - 1e-4)
    assert 0 <= metrics["shrinkage"] <= 1


def test_within_the_limits_weights_are_proportional_to_the_factors() -> None:
    rng = np.random.default_rng(0)
    y, factor = rng.integers(0, 3, 900), rng.uniform(0.5, 2, 900)
    weight, metrics = weigh([as_table(y, factor)])
    for c in range(3):
        own = y == c
        np.testing.assert_allclose(
            weight[own] / weight[own].sum() * factor[own].sum(), factor[own], rtol=1e-5
        )
        assert weight[own].sum() == pytest.approx(300, rel=1e-5)
    assert metrics["shrinkage"] == 0


class Excluding(Factor):
    """A factor whose 0 stays 0, as that of near duplicates."""

    name, params = "duplicates", DuplicatesParams(weight=0.0)
    adds = (pa.field(DUPLICATE_OF, pa.int64()), pa.field("duplicates_weight", pa.float32()))


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_rows_that_a_final_factor_excludes_do_not_count_for_the_limits(share: float, tmp_path: Path) -> None:
    n = 1000
    factor = np.where(np.arange(2 * n) < share * n, 0.0, 1.0)
    table = as_table(np.repeat([0, 1], n), np.ones(2 * n))
    table = table.append_column("duplicates_weight", pa.array(factor, pa.float32()))
    operator = Weights(WeightsParams()).in_chain([Factor(), Excluding()])  # type: ignore[list-item]
    record = {"classes": ["a", "b"], "counts": [n, n]}
    (tmp_path / "classes.json").write_text(json.dumps(record))
    (tmp_path / "cues.json").write_text(cue_state(1.0))
    states = {"ingest": tmp_path, "cues": tmp_path}
    found, _ = run_operator(operator, [table], tmp_path, states=states)
    weight = found[WEIGHT].to_numpy()
    assert not weight[factor == 0].any()
    assert weight[:n].sum() == pytest.approx(weight[n:].sum(), rel=1e-4)
    facts = {fact.name: fact for fact in Scales.load(tmp_path).explain(table.slice(0, 1), tmp_path)}
    assert "near duplicate" in facts["weight of an excluded row"].note


@pytest.mark.parametrize(("strength", "text"), [(1.0, "49.0% of the total each"), (0.5, "up to 74.8%")])
def test_rare_classes_are_told_as_far_as_classes_are_balanced(strength: float, text: str) -> None:
    sums = {0: (900.0, 900.0), 1: (90.0, 90.0), 2: (10.0, 10.0)}
    balance = balance_classes(sums, 50, strength)
    totals = class_totals(balance, {0: 900, 1: 90, 2: 10}, list("abc"), [900, 90, 10])
    assert text in rare_class_sentence(totals, 50, strength)
    assert not rare_class_sentence(totals, 50, 0.0)


def test_a_larger_cap_never_lowers_the_largest_weight() -> None:
    rng = np.random.default_rng(1)
    y, factor = rng.integers(0, 2, 500), np.exp(2.5 * rng.normal(size=500))
    for share in (0.01, 0.3):
        tops = [
            weigh([as_table(y, factor)], cap=c, min_effective_share=share)[0].max() for c in (1, 2, 5, 20, 80)
        ]
        assert all(a <= b * (1 + 1e-6) for a, b in itertools.pairwise(tops))
        assert tops[0] < 1.2 < tops[-1]


def test_shrinkage_is_recorded_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    factor = np.where(np.arange(1000) < 10, 1000.0, 1.0)
    with caplog.at_level(logging.INFO, "rowsieve"):
        _, metrics = weigh([as_table(np.zeros(1000, int), factor)])
    assert metrics["shrinkage"] > 0.3
    assert metrics["effective_share"] >= 0.2
    assert "shrunk towards class balance, by up to" in caplog.text


def test_class_balanced_gives_every_class_the_same_sum() -> None:
    y = np.repeat([0, 1], [90, 10])
    table = as_table(y, np.tile([1.0, 3.0], 50))
    weight, _ = weigh([table], method="class_balanced", min_class_rows=10)
    assert weight[y == 1].sum() == pytest.approx(50)
    np.testing.assert_allclose(weight[1::2] / weight[::2], 3, rtol=1e-5)


@pytest.mark.parametrize("method", ["robust", "class_balanced"])
def test_a_class_of_few_rows_has_a_share_that_falls_with_their_square(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    y = np.repeat([0, 1, 2], [1500, 1425, 6])
    with caplog.at_level(logging.INFO, "rowsieve"):
        weight, metrics = weigh([as_table(y, np.ones(len(y)))], method=method)
    totals = np.bincount(y, weight)
    assert totals[0] == pytest.approx(totals[1], rel=1e-4)
    assert totals[2] == pytest.approx(totals[0] * (6 / 50) ** 2, rel=1e-4)
    assert metrics["effective_share"] > 0.9
    assert (
        "'c' has 6 training rows (of 9 that operators learn from), each of which weighs 3.49 times "
        "the mean row" in caplog.text
    )
    assert "all of them 0.7% of the total" in caplog.text
    assert "cues alone is worth" not in caplog.text


def test_ordinary_imbalance_is_balanced_in_full_without_blame(caplog: pytest.LogCaptureFixture) -> None:
    y = np.repeat([0, 1], [19_900, 100])
    with caplog.at_level(logging.INFO, "rowsieve"):
        weight, metrics = weigh([as_table(y, np.ones(len(y)))])
    assert weight[y == 1].sum() == pytest.approx(10_000, rel=1e-4)
    assert metrics["effective_share"] < 0.1
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "the class 'b' has 100 training rows" in caplog.text


def test_factors_that_rest_on_few_rows_are_named(caplog: pytest.LogCaptureFixture) -> None:
    factor = np.where(np.arange(4000) % 100 == 0, 20.0, 0.0)
    weigh([as_table(np.arange(4000) % 2, factor)], min_effective_share=0.01, cap=100)
    assert "cues alone is worth" in caplog.text


@pytest.mark.parametrize(
    ("given", "measured", "ratio"), [(None, 0.5, 3.0), (0.0, 1.0, 9.0), (None, 1.0, 1.0)]
)
def test_classes_are_balanced_as_far_as_the_recipe_or_cues_says(
    given: float | None, measured: float, ratio: float
) -> None:
    y = np.repeat([0, 1], [900, 100])
    more = {} if given is None else {"class_strength": given}
    weight, metrics = weigh([as_table(y, np.ones(len(y)))], strength=measured, **more)
    assert weight[y == 0].sum() / weight[y == 1].sum() == pytest.approx(ratio, rel=1e-4)
    assert metrics["class_strength"] == (measured if given is None else given)


def test_limits_are_keys_of_the_robust_method_alone() -> None:
    for key in ("cap", "min_effective_share", "class_strength"):
        with pytest.raises(ValidationError, match=f"{key} is read by method: robust only"):
            WeightsParams.model_validate({"method": "uniform", key: 1})


def names(tmp_path: Path, operators: dict[str, Any]) -> list[str]:
    recipe = small_recipe(tmp_path)
    chain = {"groups": {"method": "none"}, "split": {}, **operators}
    return [planned.name for planned in make_plan(recipe.model_copy(update={"operators": chain})).operators]


def test_cues_joins_the_chain_where_weights_are_robust(tmp_path: Path) -> None:
    assert "cues" in names(tmp_path / "a", {"weights": {}})
    assert names(tmp_path / "b", {"weights": {}, "cues": {"robustness": "bold"}}).count("cues") == 1
    assert "cues" not in names(tmp_path / "c", {"weights": {"factors": []}})
    for method in ("uniform", "class_balanced", "group_balanced"):
        assert "cues" not in names(tmp_path / method, {"weights": {"method": method}})
    assert "cues" in names(tmp_path / "d", {"weights": {"method": "uniform"}, "groups": {"method": "cues"}})


def test_planning_names_an_unknown_column(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no column 'vectr'. Did you mean 'vector'\?"):
        names(tmp_path, {"weights": {}, "cues": {"spurious": ["vectr"]}})


@pytest.mark.parametrize(
    ("params", "setting"),
    [
        ({}, ""),
        ({"class_strength": 0}, "class_strength: 0"),
        ({"method": "uniform", "factors": ()}, "method: uniform"),
        ({"factors": ()}, "factors: []"),
    ],
)
def test_other_weights_than_those_of_cues_are_told(params: dict[str, Any], setting: str) -> None:
    """The report gave the figures of balanced classes as those of the published weights, which were all 1."""
    chosen = WeightsParams(**params)
    said = Weights(chosen).in_chain([Factor()]).warnings({}, Path)  # type: ignore[list-item]
    assert [f"`{setting}`" in one for one in said] == [True] * bool(setting)
    assert Weights(chosen.model_copy(update={"factors": None})).in_chain([]).warnings({}, Path) == ()
    cues = Cues(CuesParams()).in_chain([Weights(chosen)])
    assert cues._beside_cues == setting


@pytest.mark.parametrize(
    ("strength", "begin"), [(0.0, "Classes are not"), (0.5, "Classes are balanced in part")]
)
def test_a_strength_of_the_recipe_is_not_said_to_be_measured(strength: float, begin: str) -> None:
    given, measured = (strength_sentence(strength, is_given=is_given) for is_given in (True, False))
    assert given.startswith(begin)
    assert measured.startswith(begin)
    assert given.endswith(f"as operators.weights.class_strength: {strength:g} says.")
    assert "held-out rows" in measured
    assert "held-out rows" not in given


@pytest.mark.parametrize("drops", [True, False])
def test_figures_of_rows_that_weigh_nothing_are_said_to_be_of_other_weights(drops: bool) -> None:
    """The page said .116 of the worst group, by weights that keep the rows which these leave out."""
    operator = Weights(WeightsParams(drop_outliers=drops)).in_chain([Factor()])  # type: ignore[list-item]
    said = operator.warnings({}, Path)
    assert len(said) == int(drops)
    assert all("figures of operators.cues are of weights that keep them" in one for one in said)
