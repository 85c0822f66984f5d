"""The rule ``evidence`` over shards: the kernel's verdict for any shards, and no row without evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from engine.execution.local_executor import LocalExecutor
from operators.base import (
    CATEGORY,
    FEATURES,
    IS_OUTLIER,
    LABEL,
    MARKED_BY,
    OUTLIER_SOURCE,
    VECTOR,
    Context,
    DatasetDelta,
    OperatorError,
    ReportContext,
    Resources,
)
from operators.columns import numpy_to_vectors
from operators.outliers.adaptor import Outliers
from operators.outliers.assessment import assess
from operators.outliers.params import EvidenceParams, OutliersParams
from operators.outliers.sample import gather_sample
from operators.outliers.state import load_state
from operators.outliers.verdict import fit
from operators.report import RowStatistics
from tests.unit.in_memory import MemoryReader, run_operator, split_table
from tests.unit.operators.outliers.problems import Problem, separable

OPERATOR = Outliers(OutliersParams(rule="evidence"), ["evidence", "group"])


def rows(problem: Problem) -> pa.Table:
    """Sidecar columns of a problem, whose first rows GRASP calls noise. Row ids count from 0."""
    noise = np.where(np.arange(len(problem.y)) < 5, "grasp:noise", "")
    return pa.table(
        {
            LABEL: pa.array(problem.y, pa.int32()),
            "group_outlier": pa.array(noise.tolist()).cast(CATEGORY),
            FEATURES: numpy_to_vectors(problem.X),
        }
    )


def test_any_shards_give_the_bytes_of_the_kernel(tmp_path: Path) -> None:
    problem = separable(n=1000, flips=0.08)
    X, y, _, bad = problem
    ids = np.arange(len(y))
    results = []
    for i, cuts in enumerate([[], [100, 101, 350, 350], list(range(50, 1000, 50))]):
        folder = tmp_path / str(i)
        folder.mkdir()
        result, metrics = run_operator(OPERATOR, split_table(rows(problem), cuts), folder, seed=3)
        results.append((result.combine_chunks(), metrics))
    assert all(metrics == results[0][1] for _, metrics in results)
    for name in (IS_OUTLIER, OUTLIER_SOURCE, MARKED_BY, "outlier_score"):
        assert len({str(result[name].to_pylist()) for result, _ in results}) == 1
    result, metrics = results[0]
    expected = assess(fit(X, y, ids, seed=3), X, y, ids)
    np.testing.assert_array_equal(result[IS_OUTLIER].to_numpy(), expected.is_outlier)
    np.testing.assert_allclose(result["outlier_score"].to_numpy(), expected.score, rtol=1e-5)
    assert set(result[OUTLIER_SOURCE].to_pylist()) == {"", "flipped label"}
    noise = ["grasp:noise" if i < 5 else "" for i in range(1000)]
    source = result[OUTLIER_SOURCE].to_pylist()
    assert result[MARKED_BY].to_pylist() == [
        "+".join(filter(None, pair)) for pair in zip(source, noise, strict=True)
    ]
    assert result.schema == pa.schema(list(OPERATOR.adds))
    assert metrics["marked_group"] == metrics["only_group"] == 5
    assert metrics["sampled_rows"] == 1000
    assert metrics["estimated_precision"] >= 0.7
    assert 0.01 <= metrics["prevalence_flipped"] <= 0.12
    assert bad[expected.is_outlier].mean() >= 0.7


def test_the_sample_is_bounded_and_the_same_for_any_shards() -> None:
    table = rows(separable(n=5000))
    samples = [
        gather_sample(
            MemoryReader(split_table(table, cuts)),
            LocalExecutor(),
            max_rows=1000,
            seed=1,
            resources=Resources(),
        )
        for cuts in ([], [10, 10, 3000], list(range(100, 5000, 100)))
    ]
    assert all(sample.num_rows == 1000 for sample in samples)
    assert all(sample.equals(samples[0]) for sample in samples)
    wide = pa.table(
        {
            LABEL: pa.array([0] * 3000, pa.int32()),
            FEATURES: numpy_to_vectors(np.zeros((3000, 9000), np.float32)),
        }
    )
    reader = MemoryReader(split_table(wide, [700]))
    sample = gather_sample(reader, LocalExecutor(), max_rows=50_000, seed=0, resources=Resources())
    assert sample.num_rows == 20_000_000 // 9000


def test_verdicts_of_rows_beyond_the_sample_come_from_its_models(tmp_path: Path) -> None:
    problem = separable(n=3000, flips=0.08)
    params = OutliersParams(rule="evidence", evidence=EvidenceParams(max_rows=1000))
    tables = split_table(rows(problem), [1000, 2000])
    result, metrics = run_operator(Outliers(params, ["evidence", "group"]), tables, tmp_path)
    marked = result[IS_OUTLIER].to_numpy()
    assert metrics["sampled_rows"] == 1000
    assert problem.bad[marked].mean() >= 0.7
    assert marked[problem.bad].mean() >= 0.5


@pytest.mark.parametrize(("n", "reason"), [(60, "two such classes and 100 rows"), (0, "0 rows in all")])
def test_without_evidence_no_row_is_marked_and_a_sentence_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, n: int, reason: str
) -> None:
    table = rows(separable(n=60)).slice(0, n)
    result, metrics = run_operator(OPERATOR, split_table(table, [20]), tmp_path)
    assert not any(result[IS_OUTLIER].to_pylist())
    assert result["outlier_score"].null_count == n
    assert metrics["sampled_rows"] == n
    assert reason in caplog.text
    assert "no row is marked" in caplog.text


def test_new_rows_are_judged_by_the_old_state_which_forgets_ids_that_moved(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    problem = separable(n=1400, flips=0.08)
    first, second = split_table(rows(problem), [1000])
    before, metrics = run_operator(OPERATOR, [first], old)
    context = Context(MemoryReader([first, second]), new)
    delta = DatasetDelta(old, metrics, (1,), rows_removed=False)
    after = OPERATOR.partial_fit(context, delta, LocalExecutor())
    assert after["estimated_precision"] == metrics["estimated_precision"]
    assert after["marked_group"] == 5
    apply = OPERATOR.open_for_new_rows(context)
    assert apply(context.shards.read(0, OPERATOR.requires)).equals(before)
    found = apply(context.shards.read(1, OPERATOR.requires))[IS_OUTLIER].to_numpy()
    assert found[problem.bad[1000:]].mean() >= 0.5
    OPERATOR.partial_fit(context, replace(delta, rows_removed=True), LocalExecutor())
    forgotten, kept = load_state(new), load_state(old)
    assert forgotten is not None
    assert kept is not None
    assert set(forgotten.sample_ids) == {-1}
    assert set(kept.sample_ids) == set(range(1000))


class NewRows(MemoryReader):
    """A reader that refuses the rows of the first shard."""

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Read another shard."""
        assert shard
        return super().read(shard, columns)


@pytest.mark.parametrize("rule", ["evidence", "any"])
def test_marks_of_new_rows_are_added_to_the_counts_without_reading_the_old_ones(
    tmp_path: Path, rule: str
) -> None:
    old, new, whole = tmp_path / "old", tmp_path / "new", tmp_path / "whole"
    for folder in (old, new, whole):
        folder.mkdir()
    operator = Outliers(OutliersParams(rule=rule), ["group", *({rule} & {"evidence"})])
    first, second = split_table(rows(separable(n=1400, flips=0.08)), [1000])
    marks = pa.array(["grasp:noise", *[""] * 399]).cast(CATEGORY)
    second = second.set_column(second.column_names.index("group_outlier"), "group_outlier", marks)
    metrics = operator.fit(Context(MemoryReader([first]), old), LocalExecutor())
    delta = DatasetDelta(old, metrics, (1,), rows_removed=False)
    found = operator.partial_fit(Context(NewRows([first, second]), new), delta, LocalExecutor())
    everything = operator.fit(Context(MemoryReader([first, second]), whole), LocalExecutor())
    counted = found.keys() & {"marked_group", "only_group", "outliers", "disputed"}
    assert found["marked_group"] == 6
    assert {name: found[name] for name in counted} == {name: everything[name] for name in counted}


class ReportStub:
    """The parts of a report's context that the section reads."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.classes = ("no", "yes")

    def counts(self, *columns: str) -> dict[tuple[Any, ...], RowStatistics]:
        """Only GRASP marks rows, so nothing is disputed."""
        return {}


def test_the_report_states_the_estimates_and_what_is_not_covered(tmp_path: Path) -> None:
    run_operator(OPERATOR, [rows(separable(n=1000, flips=0.08))], tmp_path)
    stub: ReportContext = ReportStub(tmp_path)  # type: ignore[assignment]
    section = OPERATOR.report_section(stub)
    assert section is not None
    (finding,) = section.findings
    assert "of the rows marked as outliers are corrupt" in finding.text
    assert "at most" in finding.text
    assert "Not covered: labels that are wrong in the direction of a shortcut" in str(section.content[0])
    run_operator(OPERATOR, [rows(separable(n=60))], tmp_path)
    section = OPERATOR.report_section(stub)
    assert section is not None
    assert section.findings[0].text.startswith("No row is marked as an outlier: ")


def test_evidence_is_the_rule_where_there_are_features() -> None:
    class Features(Outliers):
        @property
        def adds(self) -> tuple[pa.Field, ...]:
            return (pa.field(FEATURES, VECTOR), pa.field(LABEL, pa.int32()))

    features = Features(OutliersParams())
    found = Outliers(OutliersParams()).in_chain([features])
    assert found.params.rule == "evidence"
    assert found.voters == ("evidence",)
    assert found.requires == (LABEL, FEATURES)
    with pytest.raises(OperatorError, match="rows have no features"):
        Outliers(OutliersParams()).in_chain([])
    with pytest.raises(ValidationError, match="evidence is read by rule: evidence only"):
        OutliersParams(rule="all", evidence=EvidenceParams(max_rows=1000))
