"""A part of the study in ``tests/paper/selection.py``, small enough for every run.

Every data set is there, with its fresh seeds where it has both. The whole table is in README.md.
"""

from functools import cache
from typing import Any

import pytest
from sklearn.metrics import adjusted_rand_score

from operators.grasp import GroupInference
from tests.paper.class_problems import FRESH, Name, class_problems
from tests.paper.published import AS_PUBLISHED
from tests.paper.selection import OURS, PAPER, Result, mean, regret_ratio, study

MAX_REGRET_RATIO = 0.4
SUBSET = (
    *(name for name in FRESH if name.data == "digits" and name.l2 == 0.2),
    *(name for name in FRESH if name.data not in {"digits", "synthetic"} and name.seed == 10),
)


@cache
def reduced() -> list[Result]:
    return study(SUBSET, (PAPER, OURS))


@pytest.mark.slow
def test_regret_is_at_most_two_fifths_of_the_silhouettes() -> None:
    results = reduced()
    assert {r.name.data for r in results} == {"digits", "cancer", "gaussians", "wine", "classification"}
    for rule in (PAPER, OURS):
        print(f"{rule}: ARI {mean(results, lambda r: r.ari[rule]):.3f}", end=" ")  # noqa: B023
    print(f"best {mean(results, lambda r: r.best):.3f}, ratio {regret_ratio(results):.2f}, {len(results)}")
    assert mean(results, lambda r: r.regret(PAPER)) > 0.1, "no room to do better"
    assert regret_ratio(results) <= MAX_REGRET_RATIO


@pytest.mark.parametrize("variant", ["clean", "contaminated"])
def test_not_worse_on_synthetic(variant: str) -> None:
    results = study([Name("synthetic", variant, seed, 0.0) for seed in (123, 0, 1, 2)], (PAPER, OURS))
    assert mean(results, lambda r: r.ari[OURS]) >= mean(results, lambda r: r.ari[PAPER])


@pytest.mark.slow
@pytest.mark.parametrize(("select", "rule"), [("coverage", OURS), ("silhouette", PAPER)])
def test_the_study_picks_what_the_kernel_picks(select: Any, rule: str) -> None:
    name = SUBSET[0]
    for problem, result in zip(class_problems(name), reduced()[:2], strict=True):
        labels = GroupInference(select=select, **AS_PUBLISHED).fit_predict(
            problem.gradients, [0] * len(problem.group)
        )
        assert adjusted_rand_score(problem.group, labels) == pytest.approx(result.ari[rule])
