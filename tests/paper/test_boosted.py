"""Statements of the boosted CVaR paper about its curves, on COMPAS with few rounds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.paper.boosted import curves
from tests.paper.boosted.curves import ADA, ALPHAS, AVERAGE, ERM, without_lp
from tests.paper.data_sets import SkippedError


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, dict[str, float]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(curves.NETWORK, "epochs", 5)
        try:
            return without_lp(0, (8,))
        except SkippedError as reason:
            pytest.skip(str(reason))


def test_adalpboost_lies_below_erm_and_adaboost_where_lambda_is_chosen(
    found: dict[str, dict[str, dict[str, float]]],
) -> None:
    for alpha in map(str, ALPHAS):
        others = (found[ERM]["train"][alpha], found[f"{AVERAGE}, T = 8"]["train"][alpha])
        assert found[f"{ADA}, T = 8"]["train"][alpha] <= min(others) + 1e-6


def test_no_deterministic_model_has_less_cvar_than_its_error_by_alpha(
    found: dict[str, dict[str, dict[str, float]]],
) -> None:
    erm = found[ERM]["test"]
    error = erm["0.5"] * 0.5
    assert error < 0.5
    np.testing.assert_allclose([erm[str(a)] for a in ALPHAS], np.minimum(1, error / np.array(ALPHAS)))
    assert found[f"{ADA}, T = 8"]["test"]["0.1"] < erm["0.1"]
