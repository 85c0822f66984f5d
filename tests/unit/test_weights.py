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

from operators.base import GROUP, LABEL, WEIGHT
from operators.weights.adaptor import Weights, WeightsParams
from operators.weights.kernel import balance_keys, balanced_weights, count_keys
from tests.unit.in_memory import run_operator, split_table

rows = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 3)), min_size=1, max_size=40)


def as_table(found: list[tuple[int, int]]) -> pa.Table:
    y, group = zip(*found, strict=True)
    return pa.table({LABEL: pa.array(y, pa.int32()), GROUP: pa.array(group, pa.int32())})


@given(found=rows, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_every_group_and_every_classs_noise_weighs_the_same(
    found: list[tuple[int, int]], cuts: list[int]
) -> None:
    with TemporaryDirectory() as folder:
        operator = Weights(WeightsParams(method="group_balanced"))
        result, metrics = run_operator(operator, split_table(as_table(found), cuts), Path(folder))
    names = [group if group >= 0 else ("noise", y) for y, group in found]
    sums: dict[object, float] = dict.fromkeys(names, 0.0)
    weights = result[WEIGHT].to_numpy()
    for name, weight in zip(names, weights, strict=True):
        sums[name] += weight
    np.testing.assert_allclose(list(sums.values()), len(found) / len(sums), rtol=1e-5)
    assert weights.mean() == pytest.approx(1, rel=1e-5)
    assert all(len({w for n, w in zip(names, weights, strict=True) if n == name}) == 1 for name in sums)
    assert metrics == {"groups": len(sums), "largest_weight": pytest.approx(weights.max())}
    assert result.schema == pa.schema(list(operator.adds))


def test_uniform_weights_are_one(tmp_path: Path) -> None:
    result, metrics = run_operator(Weights(WeightsParams()), [as_table([(0, 0), (1, -1)])], tmp_path)
    assert result.to_pydict() == {WEIGHT: [1, 1]}
    assert metrics == {}
    assert not list(tmp_path.iterdir())


def test_unknown_groups_are_an_error() -> None:
    keys = balance_keys(np.array([0, 1, 1]), np.array([0, 1, -1]))
    assert count_keys(keys) == {0: 1, 1: 1, -2: 1}
    with pytest.raises(KeyError):
        balanced_weights(keys, {0: 1, 1: 1})


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(ValidationError, match="group_balanced"):
        WeightsParams(method="balanced")  # type: ignore[arg-type]
