"""Weights of DCKM when it runs for more loops than in the paper."""

from __future__ import annotations

from operators.dckm.features import Coder
from operators.dckm.kernel import DckmSettings, InMemory, solve
from tests.paper.dckm.runs import LAMBDA3, SCALE, STATED, K, load

LOOPS = (5, 10, 20, 40, 80)


def after_loops(name: str, seed: int) -> dict[str, dict[str, float]]:
    """Number of outer loops -> NMI, ARI, sum of weights, and the balance cost's share of the objective."""
    data = load(name)
    coded = Coder.of(data.X, "binarize")(data.X)
    found = {}
    for loops in LOOPS:
        rows = InMemory(coded)
        settings = DckmSettings(
            n_clusters=K,
            lambda1=STATED[0],
            lambda2=SCALE * STATED[1],
            lambda3=SCALE * LAMBDA3,
            max_iter=loops,
            tol=0.0,
            init="random",
            seed=seed,
        )
        done = solve(rows, settings)
        found[str(loops)] = {
            **data.scores(rows.labels),
            "sum": done.weight_sum,
            "balance": STATED[0] * float(done.balance[-1] / done.objective[-1]),
            "share": done.effective_sample_size / len(data.y),
        }
    return found
