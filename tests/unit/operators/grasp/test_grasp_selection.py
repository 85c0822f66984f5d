"""Rules of selection: coverage against a plain search over cells, its limits, and what is recorded."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import ValidationError

from operators.grasp import GroupInference
from operators.grasp.class_model import assign
from operators.grasp.kernel import infer_class
from operators.grasp.params import GroupsParams
from operators.grasp.report import parse_grid, remark_on_pick
from operators.grasp.selection import FIT_ROWS, _at_edge, group_counts, min_samples_values
from operators.grasp.state import class_record
from tests.on_arrays import noise_shares, pick_cell, second_group_shares


def cell(*sizes: int, noise: int = 0) -> Any:
    """Labels of groups of the given sizes, then noise."""
    return np.concatenate([np.repeat(np.arange(len(sizes)), sizes), np.full(noise, -1)]).astype(np.int32)


def grid(*cells: Any) -> Any:
    """A grid of one eps."""
    return np.stack(cells)[None]


def plain_search(labels: Any, silhouettes: Any) -> tuple[int, int]:
    """The rule as its docstring says it, one cell after the other."""

    def best(limits: bool) -> Any:
        found: Any = (-np.inf, None)
        for e, m in np.ndindex(silhouettes.shape):
            rows, s = labels[e, m].tolist(), silhouettes[e, m]
            sizes = sorted((rows.count(g) for g in set(rows) - {-1}), reverse=True)
            n_noise = rows.count(-1)
            kept = n_noise <= 0.1 * len(rows) and len(sizes) > 1 and sizes[1] >= 0.01 * len(rows)
            if s == -1 or (limits and not kept):
                continue
            score = s * (1 - n_noise / len(rows)) ** 2 if s > 0 else s
            if score > found[0]:
                found = (score, (e, m))
        return found[1]

    return best(True) or best(False) or (0, 0)


@given(
    arrays(np.int32, (2, 3, 20), elements=st.sampled_from([0, 0, 0, 1, 1, 2, -1])),
    arrays(np.float64, (2, 3), elements=st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 0.75])),
)
def test_coverage_equals_a_plain_search(labels: Any, silhouettes: Any) -> None:
    assert pick_cell(labels, silhouettes).cell == plain_search(labels, silhouettes)


def test_a_swallowed_minority_loses_to_a_found_one() -> None:
    core, found = cell(60, noise=40), cell(85, 10, noise=5)
    silhouettes = np.array([[0.6, 0.4]])
    assert pick_cell(grid(core, found), silhouettes, "silhouette").cell == (0, 0)
    pick = pick_cell(grid(core, found), silhouettes)
    assert pick.cell == (0, 1)
    assert pick.within_limits
    np.testing.assert_allclose(pick.scores, [[-1, 0.4 * 0.95**2]])


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (cell(160, 20, noise=20), True),
        (cell(159, 20, noise=21), False),
        (cell(180, noise=20), False),
        (cell(198, 2), True),
        (cell(199, 1), False),
        (cell(196, 1, 1, 1, 1), False),
    ],
)
def test_limits_are_ten_per_cent_noise_and_a_second_group_of_one_per_cent(labels: Any, kept: bool) -> None:
    pick = pick_cell(grid(labels), np.array([[0.5]]))
    assert pick.within_limits == kept
    assert pick.scores[0, 0] == pytest.approx(0.5 * (1 - np.mean(labels == -1)) ** 2)


def test_without_a_cell_in_the_limits_all_cells_compete() -> None:
    labels = grid(cell(50, noise=50), cell(85, noise=15), cell(100))
    pick = pick_cell(labels, np.array([[0.5, 0.4, -1.0]]))
    assert pick.cell == (0, 1)
    assert not pick.within_limits
    np.testing.assert_allclose(pick.scores, [[0.5 * 0.25, 0.4 * 0.85**2, -1]])


def test_noise_does_not_mend_a_negative_silhouette() -> None:
    labels = grid(cell(50, 42, noise=8), cell(50, 49, noise=1))
    assert pick_cell(labels, np.array([[-0.30, -0.29]])).cell == (0, 1)


@pytest.mark.parametrize("rule", ["coverage", "silhouette"])
def test_first_cell_of_equal_scores_and_where_none_is_scored(rule: Any) -> None:
    labels = np.broadcast_to(cell(50, 50), (2, 2, 100))
    assert pick_cell(labels, np.array([[0.1, 0.3], [0.3, 0.3]]), rule).cell == (0, 1)
    failed = pick_cell(labels, np.full((2, 2), -1.0), rule)
    assert (failed.cell, failed.within_limits) == ((0, 0), False)


def test_the_number_of_drawn_rows_is_the_documented_one() -> None:
    text = str(GroupsParams.model_json_schema()["properties"]["fit_rows"]["description"])
    assert f"`auto`: {FIT_ROWS:,} with exact neighbours" in text.replace("``", "`")


def test_figures_of_cells() -> None:
    labels = grid(cell(6, 3, noise=1), cell(10), cell(noise=10), cell(3, 5, 2))
    np.testing.assert_allclose(noise_shares(labels), [[0.1, 0, 1, 0]])
    np.testing.assert_array_equal(group_counts(labels), [[2, 1, 0, 3]])
    np.testing.assert_allclose(second_group_shares(labels), [[0.3, 0, 0, 0.3]])


def scattered(seed: int = 0) -> Any:
    """A wide majority and a small group on the other side: silhouette cuts the majority's rim off."""
    rng = np.random.default_rng(seed)
    majority = rng.normal(size=(400, 6)) + 1.2 * np.eye(6)[0]
    return np.concatenate([majority, rng.normal(size=(30, 6)) * 0.3 - 4 * np.eye(6)[0]])


def test_the_kernel_takes_the_pick_and_records_all_grids() -> None:
    X = scattered()
    found: Any = {rule: infer_class(X, select=rule) for rule in ("coverage", "silhouette")}
    for rule, (labels, selection, _) in found.items():
        cell_of_pick = (
            selection.eps_grid.index(selection.eps),
            selection.min_samples_grid.index(selection.min_samples),
        )
        assert selection.rule == rule
        assert selection.rule_score == selection.rule_scores[cell_of_pick] == selection.rule_scores.max()
        assert selection.silhouette == selection.scores[cell_of_pick]
        assert selection.noise_grid[cell_of_pick] == np.mean(labels == -1)
        assert selection.groups_grid[cell_of_pick] == selection.n_groups
        assert selection.scores.shape == selection.rule_scores.shape == selection.noise_grid.shape
    ours, papers = found["coverage"][1], found["silhouette"][1]
    np.testing.assert_array_equal(ours.scores, papers.scores)
    np.testing.assert_array_equal(papers.rule_scores, papers.scores)
    assert (ours.eps, ours.min_samples) != (papers.eps, papers.min_samples)
    assert ours.n_noise < papers.n_noise


def test_the_record_is_plain_json() -> None:
    selection = infer_class(scattered())[1]
    assert selection.drawn_from == 0
    record = json.loads(json.dumps(class_record(3, "name", selection)))
    assert (record["class"], record["rule"], record["within_limits"]) == (3, "coverage", True)
    for key in ("scores", "rule_scores", "noise_grid", "groups_grid"):
        np.testing.assert_array_equal(record[key], getattr(selection, key))


def test_a_class_of_equal_rows_is_one_group_under_any_rule() -> None:
    for rule in ("coverage", "silhouette"):
        labels, selection, _ = infer_class(np.ones((7, 2)), select=rule)
        np.testing.assert_array_equal(labels, 0)
        assert (selection.n_groups, selection.n_noise, selection.within_limits) == (1, 0, False)
        np.testing.assert_array_equal(selection.groups_grid, 1)


@pytest.mark.parametrize("rule", ["coverage", "silhouette"])
@pytest.mark.parametrize("shape", [(2, 6), (8, 6), (300, 500)])
def test_a_class_whose_rows_are_all_noise_is_one_group(rule: Any, shape: tuple[int, int]) -> None:
    X = np.random.default_rng(0).normal(size=shape)
    labels, selection, model = infer_class(X, select=rule, least_rows=100)
    assert labels.tolist() == [0] * len(X)
    assert (selection.n_groups, selection.n_noise, selection.within_limits) == (1, 0, False)
    assert (selection.group_of, selection.sizes) == ((0,), (len(X),))
    assert assign(model, X + 10).tolist() == [0] * len(X)
    remark = remark_on_pick(parse_grid(class_record(0, "a", selection), ["a"]))
    assert remark.endswith("So the class was not divided, and none of its rows counts as noise.")


def test_coverage_is_the_default_and_unknown_rules_are_refused() -> None:
    assert GroupsParams().select == GroupInference().select == "coverage"
    with pytest.raises(ValueError, match="select is 'best'; use one of coverage, silhouette"):
        GroupInference(select="best").fit(np.eye(3), [0, 0, 0])  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        GroupsParams(select="best")  # type: ignore[arg-type]


@pytest.mark.parametrize("n_values", [1, 2, 3, 4, 7, 8])
def test_the_edge_of_a_grid_is_its_first_and_its_last_value(n_values: int) -> None:
    """Of odd and of even lengths; a grid of one value has no edge."""
    found = [position for position in range(n_values) if _at_edge(position, n_values)]
    assert found == ([] if n_values == 1 else [0, n_values - 1])


def test_counts_of_the_grid_are_those_of_a_thousand_rows_and_shares_beyond() -> None:
    few = (5, 10, 20, 30, 40, 50, 60, 100)
    assert min_samples_values("auto", 300) == min_samples_values("auto", 1_000) == few
    assert min_samples_values("auto", 20_000) == tuple(20 * value for value in few)
    assert min_samples_values([0.01, 25, 0.0001], 5_000) == (2, 25, 50)
