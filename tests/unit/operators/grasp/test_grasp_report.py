"""The section on the grids of eps and min_samples."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from operators.grasp.adaptor import Groups
from operators.grasp.params import GroupsParams
from operators.grasp.report import approximation_warning, parse_grid, projection_warning
from operators.grasp.state import write_grid
from operators.report import ReportFigure
from tests.unit.report_world import html_of, made, plan_over, section_of

DESCRIBED: dict[str, Any] = {"groups": Groups(GroupsParams())}
SCORES, FAILED = [[0.1, 0.5, -1.0], [0.2, 0.3, -1.0]], [[-1.0] * 3] * 2
ENTRY: dict[str, Any] = {
    "class": 0,
    "eps": 0.1,
    "min_samples": 10,
    "silhouette": 0.5,
    "eps_grid": [0.1, 0.2],
    "min_samples_grid": [5, 10, 20],
    "scores": SCORES,
    "rule": "coverage",
    "rule_scores": SCORES,
    "within_limits": False,
    "noise_grid": [[0.1, 0.2, 1.0], [0.0, 0.1, 0.9]],
    "groups_grid": [[1, 2, 0], [1, 2, 1]],
}


def test_the_pick_is_explained_for_every_class(tmp_path: Path) -> None:
    source, columns = made()
    other = {**ENTRY, "class": 1, "scores": FAILED, "rule_scores": FAILED, "groups_grid": [[1] * 3] * 2}
    other |= {"n_rows": 20_000, "drawn_from": 300_000, "stability": [0.3, 0.5]}
    other |= {"group_of": [0, 0, 1, 0], "sizes": [250_000, 20_000], "least_rows": 1500.0}
    selection = {"classes": [ENTRY, other]}
    plan = plan_over(tmp_path / "a", source, columns, selection=selection, described=DESCRIBED)
    html = html_of(plan).replace("\xa0", " ")
    assert html.count('alt="Scores over eps and min_samples for class') == 2
    assert "“coverage” picked eps = 0.1 and min_samples = 10, where its score is 0.500" in html
    assert "one step away give 0 to 2 groups and 0 % to 100 % noise. The result is sensitive" in html
    assert html.count("No setting satisfied the rule") == 1
    assert "This eps is the smallest on the grid. Widen the grid: a better value may lie beyond." in html
    assert "No setting gave two clusters" in html
    assert html.count("a sample of 20,000 of the class&#39;s 300,000 rows") == 1
    assert "The 4 clusters were merged to 2 groups of at least 1,500 rows (groups.min_rows" in html
    assert "agree with an adjusted Rand index of 0.40 (lowest 0.30; 1 is the same). Other rows" in html
    assert "Raise groups.fit_rows (null: all rows), or use the groups with care" in html
    assert html.count("adjusted Rand index") == 2
    assert section_of(plan_over(tmp_path / "b", source, columns, described=DESCRIBED), "groups") is None


def test_settings_are_scored_by_the_true_groups_where_their_labels_were_kept(tmp_path: Path) -> None:
    source, columns = made()
    selection = {"classes": [ENTRY, {**ENTRY, "class": 1}]}
    plan = plan_over(
        tmp_path, source, columns, selection=selection, truth={"group": "really"}, described=DESCRIBED
    )
    own = np.flatnonzero(np.array(columns["y"], object) == 0)
    labels = np.random.default_rng(1).integers(-1, 3, (2, 3, len(own)))
    labels[1, 0] = [-1 if columns["group"][row] == -1 else columns["group"][row] for row in own]
    write_grid(plan.store.state(plan.fingerprint_of("groups")), 0, own, 0, labels)
    section = section_of(plan, "groups")
    assert section is not None
    first, second = (item for item in section.content if isinstance(item, ReportFigure))
    pick = adjusted_rand_score(np.array(source.column("really").to_pylist())[own], labels[0, 1])
    assert f"the pick has an adjusted Rand index of {pick:.2f} within the class" in first.caption
    assert "setting, eps = 0.2 and min_samples = 5, has 1.00" in first.caption
    assert "By the true groups" not in second.caption


@pytest.mark.parametrize("accepted", [False, True])
def test_a_projection_is_a_warning_unless_it_is_accepted(accepted: bool) -> None:
    record = {"projection": {"dim": 8, "projection_error_mean": 0.05, "projection_error_p99": 0.2}}
    text = projection_warning(record, accepted)
    assert ("(8 numbers per row)" in text) is not accepted
    assert projection_warning({}, accepted) == ""


def test_the_quality_of_an_approximate_graph_is_stated() -> None:
    quality = {"index": "hnsw", "recall": 0.9, "wrong_cores": 0.02, "ari": 0.875, "ari_rows": 50}
    grid = parse_grid({**ENTRY, "n_rows": 80, "approximation": quality}, ["a"])
    text = approximation_warning(grid).replace("\xa0", " ")
    assert "approximate hnsw graph, which contains 90 % of the true edges. 2 % of a sample" in text
    assert "is 0.875 on a sample of 50 rows" in text
    assert approximation_warning(parse_grid(ENTRY, ["a"])) == ""
