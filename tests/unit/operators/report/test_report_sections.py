"""Sections that consist of a few sentences: weights, splits, decorrelation, EOS and near duplicates."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from operators.base import FEATURES, LABEL, ROW_ID
from operators.columns import numpy_to_vectors
from operators.dckm.report import balance_section
from operators.encode.report import encoding_section
from operators.encoded_features import STATE
from operators.eos.report import eos_section
from operators.neighbours.graph import DuplicateSets
from operators.neighbours.params import NeighboursParams
from operators.neighbours.report import duplicate_sentence
from operators.planes import vector_maps
from operators.report import Notice, ReportFigure, ReportSection, ReportTable
from operators.splits.report import split_section
from operators.weights.report import weight_section

WEIGHTS = {"effective_sample_size": 12.0, "largest_weight": 31.0, "doubted": 1.0}


def texts(section: ReportSection | None) -> str:
    assert section is not None
    return " ".join(item for item in section.content if isinstance(item, str)).replace("\xa0", " ")


@pytest.mark.parametrize(("share", "kept", "severities"), [(0.05, 240, ["warning"]), (0.5, 24, [])])
def test_weights_warn_where_they_are_very_unequal(share: float, kept: int, severities: list[str]) -> None:
    section = weight_section({**WEIGHTS, "effective_share": share})
    text = texts(section)
    assert (
        f"is 12 rows, {100 * share:.0f} % of the {kept} rows learnt from that are kept. The largest" in text
    )
    assert "1 row has a reduced weight" in texts(section)
    assert section is not None
    assert [finding.severity for finding in section.findings] == severities
    assert weight_section({}) is None


def test_figures_of_columns_name_the_rows_that_they_are_counted_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = {"rows": 1422, "missing": 0, "distinct": 952, "distinct_is_exact": True, "examples": ["1"]}
    use = {"kind": "numeric", "reason": None, "note": ""}
    state = {"outputs": [{"source": "a"}], "uses": {"a": use}, "summaries": {"a": summary}}
    (tmp_path / STATE).write_text(json.dumps(state))
    monkeypatch.setattr("operators.planes.vector_maps", lambda *_, **__: [])
    context: Any = SimpleNamespace(state=tmp_path)
    table = encoding_section(context, ()).content[1]
    assert isinstance(table, ReportTable)
    assert "Missing and distinct values are counted in the 1,422 rows learnt from." in table.caption


def test_the_shift_of_a_split_stands_beside_a_random_one() -> None:
    text = texts(split_section({"mmd": 0.5, "mmd_random": 0.1}))
    assert "training rows is 0.500. A random split of the same sizes would have 0.100." in text
    assert split_section({"train": 3.0}) is None


@pytest.mark.parametrize("converged", [0.0, 1.0])
def test_decorrelation_states_the_correlation_and_whether_it_converged(converged: float) -> None:
    metrics = {"correlation_before": 3.0, "correlation_after": 1.25, "effective_sample_size": 40.2}
    section = balance_section("dckm", {**metrics, "clusters": 4.0, "converged": converged})
    assert "from 3 to 1.25 in 4 clusters. Their effective sample size is 40 rows." in texts(section)
    notices = [item.text for item in section.content if isinstance(item, Notice)] if section else []
    assert any("operators.dckm.max_iter" in text for text in notices) is not bool(converged)


def test_decorrelation_states_that_its_limit_ended_it() -> None:
    figures = {"correlation_before": 3.0, "correlation_after": 1.25, "effective_sample_size": 40.0}
    section = balance_section("dckm", {**figures, "converged": 0.0, "limited": 1.0})
    assert section is not None
    (notice,) = [item.text for item in section.content if isinstance(item, Notice)]
    assert "Lower operators.dckm.min_effective_share for less correlation" in notice


def test_eos_draws_the_curve_of_every_model(tmp_path: Path) -> None:
    points = [{"alpha": a, "effective_share": a, "flagged_share": 0.1} for a in (0.1, 0.5, 1.0)]
    models = {k: {"statistics": {"alpha": 0.5}} for k in "01"}
    record = {"curve": {"0": points, "1": points}, "models": models}
    (tmp_path / "eos.json").write_text(json.dumps(record))
    metrics = {"outliers": 3.0, "effective_sample_size": 80.0, "collapsed": 1.0}
    context: Any = SimpleNamespace(state=tmp_path, metrics=metrics, classes=["a$b", "c"])
    section = eos_section(context)
    assert "EOS flags 3 rows. The effective sample size of its weights is 80 rows." in texts(section)
    assert section is not None
    assert [finding.severity for finding in section.findings] == ["warning"]
    (figure,) = (item.image for item in section.content if isinstance(item, ReportFigure))
    assert [axes.get_title() for axes in figure.axes] == ["class a$b", "class c"]  # type: ignore[union-attr]
    (tmp_path / "eos.json").write_text("{}")
    assert not any(isinstance(item, ReportFigure) for item in eos_section(context).content)  # type: ignore[union-attr]


def test_duplicates_state_what_counts_as_near() -> None:
    params = NeighboursParams(eps=0.1, metric="cosine", near_duplicate=0.01)
    none = DuplicateSets(0, 0, 0, (), True)
    assert duplicate_sentence(params, none, 50).startswith(
        "No two rows of the same class are near duplicates"
    )
    some = DuplicateSets(5, 4, 2, (np.arange(3), np.arange(2)), False)
    text = duplicate_sentence(params, some, 50).replace("\xa0", " ")
    assert text.startswith("5 rows (10 %) have a near duplicate of the same class: their")
    assert "differ by at most 0.01 in cosine distance" in text
    assert "4 pairs; the first 5,000,000 edges form 2 sets; the largest set has 3 or more rows" in text
    whole = DuplicateSets(5, 4, 2, (np.arange(3), np.arange(2)), True)
    text = duplicate_sentence(params, whole, 50).replace("\xa0", " ")
    assert "4 pairs in 2 sets; the largest set has 3 rows" in text


def test_a_map_of_columns_in_different_units_is_not_that_of_the_largest_numbers() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3)) * [1.0, 1.0, 1e9]
    table = pa.table({LABEL: np.zeros(60, int), ROW_ID: np.arange(60), FEATURES: numpy_to_vectors(rows)})
    context: Any = SimpleNamespace(sample=lambda columns: table)
    (plain,), (scaled,) = (vector_maps(context, FEATURES, "map", scaled=scaled) for scaled in (False, True))
    assert "100%" in plain.axes[0]
    assert "100%" not in scaled.axes[0]
    assert np.corrcoef(plain.points[:, 0], rows[:, 2])[0, 1] ** 2 > 0.999


def test_a_large_number_that_all_rows_share_hides_no_map() -> None:
    """Identifiers beyond 2^53 are one float32: every point was drawn in the same place."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(60, 3)), np.full(60, 9e15)]).astype(np.float32)
    table = pa.table({LABEL: np.zeros(60, int), ROW_ID: np.arange(60), FEATURES: numpy_to_vectors(rows)})
    context: Any = SimpleNamespace(sample=lambda columns: table)
    (found,) = vector_maps(context, FEATURES, "map", scaled=True)
    assert found.points.std(axis=0).min() > 0.5
