"""Weights against their definition, whatever the shards."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from operators.base import GROUP, IS_OUTLIER, LABEL, WEIGHT
from operators.weights.adaptor import Weights, WeightsParams
from operators.weights.kernel import balance_keys, balanced_weights, count_keys
from tests.unit.in_memory import run_operator, split_table

# (class, group, marked as an outlier)
rows = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-1, 3), st.booleans()).map(
        lambda r: (*r[:2], r[2] and r[1] < 0)
    ),
    min_size=1,
    max_size=40,
)


def as_table(found: list[tuple[int, int, bool]]) -> pa.Table:
    y, group, is_outlier = zip(*found, strict=True)
    columns = {
        LABEL: pa.array(y, pa.int32()),
        GROUP: pa.array(group, pa.int32()),
        IS_OUTLIER: pa.array(is_outlier),
    }
    return pa.table(columns)


@given(found=rows, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_every_group_and_every_classs_noise_weighs_the_same(
    found: list[tuple[int, int, bool]], cuts: list[int]
) -> None:
    with TemporaryDirectory() as folder:
        operator = Weights(WeightsParams(method="group_balanced"))
        result, metrics = run_operator(operator, split_table(as_table(found), cuts), Path(folder))
    everyone = result[WEIGHT].to_numpy()
    outliers = np.array([is_outlier for *_, is_outlier in found])
    assert (everyone[outliers] == 1).all()
    kept = [row for row in found if not row[2]]
    names = [group if group >= 0 else ("noise", y) for y, group, _ in kept]
    sums: dict[object, float] = dict.fromkeys(names, 0.0)
    weights = everyone[~outliers]
    for name, weight in zip(names, weights, strict=True):
        sums[name] += weight
    np.testing.assert_allclose(list(sums.values()), len(kept) / max(len(sums), 1), rtol=1e-5)
    assert everyone.mean() == pytest.approx(1, rel=1e-5)
    assert all(len({w for n, w in zip(names, weights, strict=True) if n == name}) == 1 for name in sums)
    assert metrics == {"groups": len(sums), "largest_weight": pytest.approx(weights.max(initial=0))}
    assert result.schema == pa.schema(list(operator.adds))


def test_uniform_weights_are_one(tmp_path: Path) -> None:
    result, metrics = run_operator(
        Weights(WeightsParams()), [as_table([(0, 0, False), (1, -1, True)])], tmp_path
    )
    assert result.to_pydict() == {WEIGHT: [1, 1]}
    assert metrics == {}
    assert not list(tmp_path.iterdir())


def test_unknown_groups_are_an_error() -> None:
    keys = balance_keys(
        np.array([0, 1, 1, 1]), np.array([0, 1, -1, -1]), np.array([False, False, False, True])
    )
    assert count_keys(keys) == {0: 1, 1: 1, -2: 1}
    with pytest.raises(KeyError):
        balanced_weights(keys, {0: 1, 1: 1})


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(ValidationError, match="group_balanced"):
        WeightsParams(method="balanced")  # type: ignore[arg-type]
