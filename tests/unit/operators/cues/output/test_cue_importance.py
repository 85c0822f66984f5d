"""Importance by source column in ``cues``: a shortcut helps on average and harms the worst group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operators.cues.gather import SampledRows
from operators.cues.named.references import FeatureColumns
from operators.cues.output.importance import (
    MIN_ROWS,
    leading_column,
    measured_importance,
    read_importance,
    write_importance,
)
from operators.cues.output.report import cue_section
from operators.cues.robust_weights import fit
from operators.cues.settings import CueSettings
from operators.report import ReportFigure, ReportTable
from tests.unit.operators.cues.output.test_cue_report import FOUND


@pytest.fixture(scope="module")
def fitted(cue_problem: Any) -> Any:
    X, label, ids = (cue_problem[i][:3000] for i in (0, 1, 4))
    return fit(X, label, ids, CueSettings(), n_classes=2), SampledRows(X, label, ids)


COLUMNS = FeatureColumns(("core", "noise", "unused", "cue", "constant"), (4, 2, 0, 1, 1))


def test_the_shortcut_and_the_core(fitted: Any, tmp_path: Path) -> None:
    state, sample = fitted
    found = measured_importance(state, sample, COLUMNS, 2, 0)
    assert found is not None
    assert found["grouping"] == "shortcut"
    assert found["rows"] == 3000
    by_name = {entry["column"]: entry for entry in found["columns"]}
    assert set(list(by_name)[:2]) == {"cue", "core"}
    assert set(by_name) == {"core", "noise", "cue", "constant"}
    assert by_name["cue"]["balanced_accuracy"]["mean"] > 0.1
    assert by_name["cue"]["worst_group_accuracy"]["mean"] < -0.1
    assert by_name["core"]["balanced_accuracy"]["mean"] > 0.005
    assert abs(by_name["noise"]["balanced_accuracy"]["mean"]) < 0.005
    assert by_name["constant"]["accuracy"] == {"mean": 0.0, "std": 0.0, "margin": 0.0}
    write_importance(tmp_path, found)
    assert read_importance(tmp_path) == found
    section = cue_section(FOUND, found)
    assert "values of cue (" in section.findings[-1].text
    tables = [item for item in section.content if isinstance(item, ReportTable)]
    assert [row[0] for row in tables[-1].rows] == list(by_name)
    assert any(isinstance(item, ReportFigure) for item in section.content)


@pytest.mark.parametrize(
    ("lost", "leads"), [((0.13, 0.01), True), ((0.13, 0.05), False), ((0.09, 0.0), False), ((0.2,), True)]
)
def test_one_column_leads_by_far_or_none_does(lost: tuple[float, ...], leads: bool) -> None:
    columns = [{"column": f"c{k}", "balanced_accuracy": {"mean": mean}} for k, mean in enumerate(lost)]
    assert leading_column({"columns": columns}) == ("c0" if leads else None)
    assert leading_column(None) is None


def test_a_rare_class_has_no_full_share(fitted: Any) -> None:
    """Twelve rows of a third class at random, which full balance would let decide a third of the fit."""
    state, sample = replace(fitted[0], blend=0.0), fitted[1]  # groups are the classes
    y = sample.y.copy()
    y[np.random.default_rng(0).choice(len(y), 12, replace=False)] = 2
    two = measured_importance(state, sample, COLUMNS, 2, 0)
    three = measured_importance(state, replace(sample, y=y), COLUMNS, 3, 0)
    assert two is not None
    assert three is not None
    assert three["baseline"]["accuracy"] > two["baseline"]["accuracy"] - 0.02


def test_rows_are_scored_by_the_model_that_has_not_seen_them(fitted: Any) -> None:
    """With labels at random and more features than rows, a model is right on what it was fitted to alone."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 400)).astype(np.float32)
    y, ids = rng.integers(0, 2, 300), np.arange(300)
    sample = SampledRows(X, y, ids)
    state = replace(fitted[0], blend=0.0)  # groups are the classes
    found = measured_importance(state, sample, FeatureColumns(("a", "b"), (200, 200)), 2, 0)
    assert found is not None
    assert found["baseline"]["accuracy"] < 0.65


def test_too_few_rows_or_one_column_give_none(fitted: Any, tmp_path: Path) -> None:
    state, sample = fitted
    assert measured_importance(state, sample, FeatureColumns(("v",), (8,)), 2, 0) is None
    few = SampledRows(*(part[: MIN_ROWS - 1] for part in (sample.X, sample.y, sample.ids)))
    assert measured_importance(state, few, COLUMNS, 2, 0) is None
    alone = np.where(np.arange(3000) == 0, 1, 0)
    assert measured_importance(state, SampledRows(sample.X, alone, sample.ids), COLUMNS, 2, 0) is None
    many = replace(sample, y=np.arange(3000) % 101)
    assert measured_importance(replace(state, blend=0.0), many, COLUMNS, 101, 0) is None
    write_importance(tmp_path, None)
    assert read_importance(tmp_path) is None
    assert cue_section(FOUND, None).findings == cue_section(FOUND).findings
