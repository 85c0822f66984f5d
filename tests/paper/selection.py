"""The study behind the rule ``coverage``: how well rules pick a cell where the true groups are known.

    python -m tests.paper.selection

prints the tables of ``tests/paper/README.md``. The score of a pick is the adjusted Rand index of its labels
against the true groups of the class, all noise being one cluster; its regret is the best cell's
score less its own. Within one class "group := class label" scores 0; over all classes of a data set
that floor stands beside the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import adjusted_rand_score

from operators.dbscan.kernel import dbscan_grid
from operators.grasp.selection import EPS_GRID, MIN_SAMPLES_GRID
from operators.metrics import silhouette_grid
from operators.points import Points
from tests.paper.class_problems import DESIGN, FRESH, REPEAT, ClassProblem, Name, class_problems
from tests.paper.selection_rules import CANDIDATES, Clustered

PAPER, OURS = "silhouette (the paper's)", "coverage"
METRIC = "centered_cosine"
RESAMPLES = 2000


@dataclass(frozen=True)
class Result:
    """One class: ARI of each rule's pick and of the best cell, and noise share of each pick."""

    name: Name
    group: npt.NDArray[np.int64]
    labels: dict[str, npt.NDArray[np.int32]]
    ari: dict[str, float]
    noise: dict[str, float]
    best: float

    def regret(self, rule: str) -> float:
        return self.best - self.ari[rule]


def cluster_class(problem: ClassProblem) -> Clustered:
    labels = dbscan_grid(problem.gradients, EPS_GRID, MIN_SAMPLES_GRID, METRIC)
    vectors = np.asarray(Points(problem.gradients, METRIC).vectors, np.float64)
    scores = silhouette_grid(vectors, labels.reshape(-1, len(vectors))).reshape(labels.shape[:2])
    return Clustered(vectors, labels, scores)


def evaluate(problem: ClassProblem, rules: Iterable[str] = CANDIDATES) -> Result:
    case = cluster_class(problem)
    truth = np.array([[adjusted_rand_score(problem.group, cell) for cell in row] for row in case.labels])
    cells = {}
    for rule in rules:
        scores = CANDIDATES[rule](case)
        cells[rule] = np.unravel_index(np.argmax(scores), scores.shape)
    return Result(
        name=problem.name,
        group=problem.group,
        labels={rule: case.labels[cell] for rule, cell in cells.items()},
        ari={rule: float(truth[cell]) for rule, cell in cells.items()},
        noise={rule: float(case.noise[cell]) for rule, cell in cells.items()},
        best=float(truth.max()),
    )


def study(names: Sequence[Name], rules: Iterable[str] = CANDIDATES) -> list[Result]:
    return [evaluate(problem, rules) for name in names for problem in class_problems(name)]


def regret_ratio(results: Sequence[Result], rule: str = OURS) -> float:
    """Mean regret of a rule over mean regret of the paper's."""
    return mean(results, lambda r: r.regret(rule)) / mean(results, lambda r: r.regret(PAPER))


def mean(results: Sequence[Result], value: Callable[[Result], float]) -> float:
    return float(np.mean([value(r) for r in results]))


def interval(results: Sequence[Result], rule: str = OURS) -> tuple[float, float]:
    """90 % bootstrap interval of the ratio; problems made from the same rows are drawn together."""
    kept: dict[Any, list[Result]] = {}
    for result in results:
        kept.setdefault((result.name.data, result.name.variant, result.name.seed), []).append(result)
    ours = np.array([sum(r.regret(rule) for r in rs) for rs in kept.values()])
    papers = np.array([sum(r.regret(PAPER) for r in rs) for rs in kept.values()])
    draws = np.random.default_rng(0).integers(0, len(ours), (RESAMPLES, len(ours)))
    low, high = np.quantile(ours[draws].sum(axis=1) / papers[draws].sum(axis=1), [0.05, 0.95])
    return float(low), float(high)


def whole_data_ari(results: Sequence[Result], rule: str | None) -> float:
    """Mean over data sets of the ARI over all classes together; rule None is the class label alone."""
    kept: dict[Name, list[Result]] = {}
    for result in results:
        kept.setdefault(result.name, []).append(result)
    scores = []
    for classes in kept.values():
        truth = np.concatenate([100 * c + r.group for c, r in enumerate(classes)])
        # Noise of all classes is one cluster, as in the paper's tables.
        found = [
            np.full(len(r.group), 100 * c) if rule is None else shifted(r.labels[rule], 100 * c)
            for c, r in enumerate(classes)
        ]
        scores.append(adjusted_rand_score(truth, np.concatenate(found)))
    return float(np.mean(scores))


def shifted(labels: npt.NDArray[np.int32], offset: int) -> npt.NDArray[Any]:
    return np.where(labels < 0, -1, labels + offset)


def print_rules(title: str, results: Sequence[Result]) -> None:
    print(f"\n{title}, {len(results)} class problems; best cell {mean(results, lambda r: r.best):.3f}\n")
    print("| rule | ARI | sd | regret | sd | ratio | worse | noise |")
    print("|---|---|---|---|---|---|---|---|")
    for rule in results[0].ari:
        ari = np.array([r.ari[rule] for r in results])
        regret = np.array([r.regret(rule) for r in results])
        worse = np.mean([r.ari[rule] < r.ari[PAPER] - 1e-9 for r in results])
        figures = [ari.mean(), ari.std(ddof=1), regret.mean(), regret.std(ddof=1)]
        texts = [f"{v:.3f}" for v in figures] + [f"{regret_ratio(results, rule):.2f}", f"{worse:.0%}"]
        print(f"| {rule} | {' | '.join(texts)} | {mean(results, lambda r: r.noise[rule]):.0%} |")  # noqa: B023
    low, high = interval(results)
    print(f"\nRatio of `{OURS}`: {regret_ratio(results):.2f}, 90 % of bootstraps {low:.2f} to {high:.2f}.")


def print_data(title: str, results: Sequence[Result]) -> None:
    print(f"\n{title}, by data set\n")
    print("| data | problems | silhouette | coverage | best | ratio | whole data: floor | silh. | cov. |")
    print("|---|---|---|---|---|---|---|---|---|")
    for data in sorted({r.name.data for r in results}):
        some = [r for r in results if r.name.data == data]
        figures = [mean(some, lambda r: r.ari[PAPER]), mean(some, lambda r: r.ari[OURS])]
        figures += [mean(some, lambda r: r.best), regret_ratio(some)]
        figures += [whole_data_ari(some, rule) for rule in (None, PAPER, OURS)]
        print(f"| {data} | {len(some)} | {' | '.join(f'{v:.2f}' for v in figures)} |")


def main() -> None:
    design, fresh = study(DESIGN), study(FRESH)
    for title, results in (("Design", design), ("Fresh", fresh), ("All", design + fresh)):
        print_rules(title, results)
    repeat = study(REPEAT, (PAPER, OURS))
    print_rules("Repeat", repeat)
    for title, results in (("Design", design), ("Fresh", fresh), ("Repeat", repeat)):
        print_data(title, results)


if __name__ == "__main__":
    main()
