"""One verdict from several voters, whatever the shards; weights that other operators multiply."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import InputError
from engine.plan.planner import make_plan
from operators.base import (
    CATEGORY,
    IS_OUTLIER,
    LABEL,
    MARKED_BY,
    OUTLIER_SOURCE,
    OperatorError,
    OperatorParams,
)
from operators.outliers.adaptor import Outliers, OutliersParams
from operators.weights.adaptor import Weights
from operators.weights.params import WeightsParams
from tests.data import small_recipe
from tests.unit.in_memory import run_operator, split_table
from tests.unit.report_world import Written

marks = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30)
VERDICTS: dict[str, Callable[[bool, bool], bool]] = {
    "all": lambda group, eos: group and eos,
    "any": lambda group, eos: group or eos,
    "group": lambda group, eos: group,
    "eos": lambda group, eos: eos,
}

UNIFORM = WeightsParams(method="uniform", trust="all")


def assessed(found: list[tuple[bool, bool]]) -> pa.Table:
    return pa.table(
        {
            LABEL: pa.array([0] * len(found), pa.int32()),
            "group_outlier": pa.array(["grasp:noise" if group else "" for group, _ in found]).cast(CATEGORY),
            "eos_outlier": pa.array([eos for _, eos in found]),
        }
    )


@given(found=marks, cuts=st.lists(st.integers(0, 30), max_size=3), rule=st.sampled_from(sorted(VERDICTS)))
def test_the_rule_decides_and_conflicts_are_counted(
    found: list[tuple[bool, bool]], cuts: list[int], rule: str
) -> None:
    operator = Outliers(OutliersParams(rule=rule), ["eos", "group"])
    with TemporaryDirectory() as folder:
        result, metrics = run_operator(operator, split_table(assessed(found), cuts), Path(folder))
    verdict = [VERDICTS[rule](*row) for row in found]
    marked = ["+".join([*(["eos"] if e else []), *(["grasp:noise"] if g else [])]) for g, e in found]
    assert result[IS_OUTLIER].to_pylist() == verdict
    assert result[MARKED_BY].to_pylist() == marked
    assert result[OUTLIER_SOURCE].to_pylist() == [
        text if yes else "" for text, yes in zip(marked, verdict, strict=True)
    ]
    assert result.schema == pa.schema(list(operator.adds))
    assert metrics == {
        "outliers": sum(verdict),
        "disputed": sum(g != e for g, e in found),
        "marked_group": sum(g for g, _ in found),
        "marked_eos": sum(e for _, e in found),
        "only_group": sum(g and not e for g, e in found),
        "only_eos": sum(e and not g for g, e in found),
    }


def fake_operator(name: str, *columns: tuple[str, Any]) -> Written:
    class FakeOperator(Written):
        @property
        def adds(self) -> tuple[pa.Field, ...]:
            return tuple(pa.field(*column) for column in columns)

    return FakeOperator(name, [])


def test_judges_are_those_of_the_recipe() -> None:
    groups, eos = (
        fake_operator("groups", ("group_outlier", CATEGORY)),
        fake_operator("eos", ("eos_outlier", pa.bool_())),
    )
    alone = Outliers(OutliersParams()).in_chain([groups])
    assert alone.requires == (LABEL, "group_outlier")
    assert Outliers(OutliersParams()).in_chain([groups, eos]).voters == ("eos", "group")
    with pytest.raises(OperatorError, match=r"no operator 'eos' of this recipe marks outliers.*group"):
        Outliers(OutliersParams(rule="eos")).in_chain([groups])
    with pytest.raises(OperatorError, match=r"rule: no operator '' of this recipe marks outliers.*group"):
        Outliers(OutliersParams(rule="")).in_chain([groups])
    with pytest.raises(OperatorError, match="no operator of the recipe marks rows"):
        Outliers(OutliersParams()).in_chain([])


def test_every_recipe_gets_a_verdict_once(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    assert [p.name for p in make_plan(recipe).operators].count("outliers") == 1
    with_it = recipe.model_copy(update={"operators": {**recipe.operators, "outliers": {"rule": "group"}}})
    (params,) = (p.params for p in make_plan(with_it).operators if p.name == "outliers")
    assert params["rule"] == "group"
    wrong = recipe.model_copy(update={"operators": {**recipe.operators, "outliers": {"rule": "groups"}}})
    with pytest.raises(InputError, match="one of: group"):
        make_plan(wrong)


def test_other_weights_multiply_and_kept_rows_have_mean_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    eos, dckm, outlier = rng.random(50), rng.random(50), rng.random(50) < 0.2
    table = pa.table(
        {
            LABEL: pa.array([0] * 50, pa.int32()),
            "group": pa.array([0] * 50, pa.int32()),
            IS_OUTLIER: pa.array(outlier),
            "dckm_weight": pa.array(dckm.astype(np.float32)),
            "eos_weight": pa.array(eos.astype(np.float32)),
        }
    )
    chain = [
        fake_operator("eos", ("eos_weight", pa.float32())),
        fake_operator("dckm", ("dckm_weight", pa.float32())),
    ]
    operator = Weights(WeightsParams(method="uniform", trust="all", drop_outliers=True)).in_chain(chain)
    result, metrics = run_operator(operator, split_table(table, [7, 31]), tmp_path)
    expected = np.where(outlier, 0.0, eos * dckm)
    expected /= expected[~outlier].mean()
    np.testing.assert_allclose(result["weight"].to_numpy(), expected, rtol=1e-5)
    assert metrics["effective_sample_size"] == pytest.approx(
        expected.sum() ** 2 / (expected**2).sum(), rel=1e-5
    )
    only = Weights(WeightsParams(method="uniform", trust="all", factors=("eos",))).in_chain(chain)
    assert only.requires[3:] == ("eos_weight",)


def test_a_weight_of_a_voter_that_was_overruled_does_not_count(tmp_path: Path) -> None:
    eos = np.array([0.0, 0.0, 1.2, 0.8])
    table = pa.table(
        {
            LABEL: pa.array([0] * 4, pa.int32()),
            "group": pa.array([0, 0, 0, 1], pa.int32()),
            IS_OUTLIER: pa.array([True, False, False, False]),
            "eos_weight": pa.array(eos.astype(np.float32)),
            "eos_outlier": pa.array([True, True, False, False]),
        }
    )
    chain = [fake_operator("eos", ("eos_weight", pa.float32()), ("eos_outlier", pa.bool_()))]
    even, _ = run_operator(Weights(UNIFORM).in_chain(chain), [table], tmp_path)
    np.testing.assert_allclose(even["weight"].to_numpy(), np.array([0, 1, 1.2, 0.8]) * 4 / 3, rtol=1e-6)
    params = WeightsParams(trust="all", method="group_balanced")
    balanced, _ = run_operator(Weights(params).in_chain(chain), [table], tmp_path)
    # Each group has the same sum, whatever the factors do inside it.
    weight = balanced["weight"].to_numpy()
    np.testing.assert_allclose([weight[:3].sum(), weight[3]], [2, 2], rtol=1e-6)
    np.testing.assert_allclose(weight[:3] / weight[1], [0, 1, 1.2], rtol=1e-6)


class Dropping(OperatorParams):
    drop_outliers: bool = True


def test_weights_follow_split_and_name_an_unknown_factor() -> None:
    split = fake_operator("split", ("split", CATEGORY))
    split.params = Dropping()
    assert Weights(WeightsParams()).in_chain([split]).params.drop_outliers is True
    assert Weights(WeightsParams()).in_chain([]).params.drop_outliers is False
    assert Weights(WeightsParams(drop_outliers=False)).in_chain([split]).params.drop_outliers is False
    with pytest.raises(OperatorError, match="no operator adds weights named 'eso'; there are: eos"):
        Weights(WeightsParams(factors=("eso",))).in_chain(
            [fake_operator("eos", ("eos_weight", pa.float32()))]
        )


def test_weights_that_rest_on_few_rows_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wild = np.where(np.arange(50) < 2, 25.0, 0.0)
    columns = {"dckm_weight": wild, "eos_weight": np.ones(50), LABEL: np.zeros(50, np.int32)}
    table = pa.table({**columns, "group": np.zeros(50, np.int32), IS_OUTLIER: np.zeros(50, bool)})
    chain = [
        fake_operator("eos", ("eos_weight", pa.float32())),
        fake_operator("dckm", ("dckm_weight", pa.float32())),
    ]
    _, metrics = run_operator(Weights(UNIFORM).in_chain(chain), [table], tmp_path)
    assert metrics["effective_sample_size"] == pytest.approx(2)
    assert "worth 2 of 50 rows" in caplog.text
    assert "dckm alone is worth 2: make its weights more equal" in caplog.text
