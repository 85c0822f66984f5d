"""Measures what full robust weights gain on tables with known groups, and fits the trees of ``cues`` to it.

``python -m tests.paper.real.expected_gain measure FOLDER [PART OF SEED]`` tries the weights on every problem
of two classes of the earlier studies and appends a record of each to a file in the folder; several processes
can share the work. ``... fit FOLDER`` prints the result by cross-validation and writes
``operators/cues/decision/expected_gain.json``. Problems of one source table are in one fold; ``... sets
FOLDER`` leaves out a whole set of problems at a time. ``measure-many``, ``fit-many`` and ``sets-many`` do the
same for more than two classes, in another folder. It needs what ``tests.paper.real.kernel`` needs.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.model_selection import GroupKFold

from operators.class_shares import class_factors
from operators.cues import CueSettings, fit, robust_weights, weights
from operators.cues.decision import full_weights
from operators.cues.decision.balance_of_classes import choose_class_strength
from operators.cues.decision.expected_gain import (
    LEAST,
    LEAST_OF_MANY,
    NAMES,
    STORED,
    STORED_OF_MANY,
    measurements,
)
from operators.cues.decision.full_weights import gain_to_expect, tried_in_full
from operators.cues.models.weight_path import CLASS_BALANCE, FULL, WeightPath
from operators.cues.row_weights import full_factor
from tests.paper.real.generated import Problem
from tests.paper.real.kernel import groups_of, has_scored_groups, score

MIN_GROUP_ROWS = 30
CLIP = (-0.6, 0.3)
"""Gains beyond these are cut: how much is gained matters less than whether, and a large loss most."""
FOLDS, SEED = 10, 0
TREES = {
    "n_estimators": 300,
    "learning_rate": 0.05,
    "max_leaf_nodes": 8,
    "min_samples_leaf": 10,
    "max_features": 0.25,
    "subsample": 0.7,
    "random_state": SEED,
}
HONEST = ("pair", "no cue", "none", "honest", "entity")
"""Beginnings of the kinds of problems in which no shortcut was planted."""
GENERATED = ("cues", "varied", "binary", "no_cue")
"""Sets in which every problem is a table of its own."""
RENAMED = {
    "us_contagious_diseases": "diseases",
    "us_employment": "employment",
    "usa_migration": "migration",
    "txhousing": "housing",
    "nycflights": "flights",
    "planes": "flights",
    "airlines": "flights",
    "loans_full_schema": "lending_club",
    "who2": "who",
    "labor_market_discrimination": "resume",
    "nmes1988": "ofp",
    "psid7682": "wages",
    "complete": "surveys",
    "close_college": "card",
    "schooling": "card",
    "mathachieve": "hsb82",
    "wagepan": "males",
    "medexp": "randhie",
    "seattlepets": "pets",
    "rwm": "rwm5yr",
    "rwm1984": "rwm5yr",
    "email": "spam",
}
"""Table -> name that another set has for it or for one with the same rows."""
SAME_LETTERS = 4
"""First letters by which tables count as one: years and extracts of one survey have them in common."""
SETS = (
    "pairs",
    "drawn",
    "many",
    "many_held_back",
    "keel",
    "planted",
    *GENERATED,
    "images",
    "entities",
    "entities_fresh",
    "sixth",
    "fresh",
    "pixels",
    "made",
    "doubled",
    "three",
    "rare-class",
    "part-of-rows",
    "third-value",
    "more_pairs",
    "noisy_pairs",
    "aligned",
)
SETS_OF_MANY = (
    "many_classes",
    "many_classes_held_back",
    "many_classes_planted",
    "pairs",
    "drawn",
    "keel",
    "planted",
    *GENERATED,
    "entities",
    "entities_fresh",
    "sixth",
    "fresh",
    "class-sets",
    "aligned_classes",
    "more_class_pairs",
    "noisy_class_pairs",
)
"""Sets with problems of more than two classes."""
COMMANDS = ("measure", "fit", "sets", "measure-many", "fit-many", "sets-many")
Array = npt.NDArray[np.float64]
Record = dict[str, Any]


def problems(name: str) -> Mapping[str, Callable[[int], Problem]]:
    """Return the problems of a set."""
    from tests.paper.real import design, drawn, entities, fresh, fresh_sixth, generated, images, keel, many
    from tests.paper.real import many_classes as classes
    from tests.paper.real.aligned import ALIGNED, ALIGNED_CLASSES
    from tests.paper.real.class_sets import CLASS_SETS
    from tests.paper.real.doubled import DOUBLED
    from tests.paper.real.pixels import PIXELS
    from tests.paper.real.shapes import shaped
    from tests.paper.real.unseen import SEEN

    found: dict[str, Mapping[str, Callable[[int], Problem]]] = {
        "pairs": design.PAIRS,
        "planted": design.PLANTED,
        "cues": design.CUES,
        "varied": design.VARIED,
        "no_cue": design.NO_CUE,
        "keel": keel.KEEL,
        "images": images.IMAGES,
        "many": many.MANY,
        "many_held_back": many.MANY_HELD_BACK,
        "many_classes": classes.MANY_CLASSES,
        "many_classes_held_back": classes.MANY_CLASSES_HELD_BACK,
        "many_classes_planted": classes.MORE_PLANTED,
        "entities": entities.DESIGN,
        "entities_fresh": entities.FRESH,
        "fresh": fresh.FRESH,
        "sixth": fresh_sixth.FRESH_SIXTH,
        "binary": generated.BINARY,
        "drawn": drawn.DRAWN,
        "pixels": PIXELS,
        "made": SEEN,
        "doubled": DOUBLED,
        "more_pairs": many.MORE_PAIRS,
        "noisy_pairs": many.NOISY_PAIRS,
        "more_class_pairs": classes.MORE_CLASS_PAIRS,
        "noisy_class_pairs": classes.NOISY_CLASS_PAIRS,
        "aligned": ALIGNED,
        "aligned_classes": ALIGNED_CLASSES,
        "class-sets": CLASS_SETS,
    }
    return (found | dict(shaped()))[name]


def family(name: str, set_name: str) -> str:
    """Return the name of the source table, of which all problems are in one fold.

    Public tables are in several sets, with or without the name of their package, and the digits in two.
    """
    if set_name in (*GENERATED, "drawn", "made"):
        return f"{set_name} {name}"
    if set_name == "images":
        return "digits"
    if set_name == "pixels":
        return name.split()[0]
    table = re.split(r",| with |:", name)[0].split("/")[-1].lower()
    return RENAMED.get(table, table)[:SAME_LETTERS]


def measured(problem: Problem, seed: int) -> Record | None:
    """Return the accuracies of the worst true group under all weights, and the measurements of each way."""
    n = len(problem.y)
    ids, counts = np.arange(n), np.bincount(problem.y, minlength=problem.classes)
    settings = CueSettings(seed=seed, columns=problem.columns)
    kept: list[Any] = []

    def keep(search: Any, column: Any, decision: Any, *rest: Any) -> tuple[Any, Any]:
        kept[:] = [search, column, decision, *rest]
        return search, decision

    with patch.object(robust_weights, "follow_in_full", keep):
        state = fit(problem.X, problem.y, ids, settings, n_classes=problem.classes)
    if not kept:
        return None
    search, column, decision, sample, s = kept
    group = groups_of(problem.y, problem.hidden, problem)
    oracle = (1.0 / np.maximum(np.bincount(group), MIN_GROUP_ROWS))[group]
    shut = decision.class_strength
    if decision.blend > 0 and decision.trials:
        shut = choose_class_strength(decision.trials, sample.y).strength
    found: Record = {
        "gate": state.blend,
        "open": full_weights.is_open(search, decision),
        "floor": max(score(problem, w)[0] for w in (np.ones(n), class_factors(counts)[problem.y])),
        "oracle": score(problem, oracle)[0],
        "by_gate": score(problem, weights(state, problem.X, problem.y, ids))[0],
        "shut": score(problem, class_factors(counts, strength=shut)[problem.y])[0],
        "ways": [],
    }
    taken: list[Array] = []

    def take(*given: Any, of_column: bool) -> float | None:
        taken[:] = [measurements(*given, of_column=of_column)] if FULL in given[1].strengths else []
        return None

    for way, tried in tried_in_full(search, column, sample, s):
        with patch.object(full_weights, "expected_gain", take):
            gain_to_expect(way, tried, sample)
        if not taken:
            continue
        factor = full_factor(way, problem.X, problem.y, ids)
        path = WeightPath.fit(factor, problem.y, counts, cap=s.cap, min_effective=s.min_effective)
        strength = CLASS_BALANCE + (tried.blend or FULL - CLASS_BALANCE)
        worst = score(problem, path.weights(strength, factor, problem.y))[0]
        found["ways"].append({"x": taken.pop().tolist(), "worst": worst, "passes": tried.blend > 0})
    return found


def made(seed: int, part: int, of: int, *, many: bool) -> Iterator[tuple[str, str, Problem]]:
    """Yield set, name and problem of every ``of``-th problem of two (more) classes that can be made here."""
    for set_name in SETS_OF_MANY if many else SETS:
        for number, (name, make) in enumerate(problems(set_name).items()):
            if number % of != part:
                continue
            try:
                problem = make(seed)
            except (ImportError, OSError, ValueError, KeyError) as error:
                print(f"{set_name}, {name}: left out: {error}", file=sys.stderr)
                continue
            if (problem.classes > 2) == many and has_scored_groups(problem):
                yield set_name, name, problem


def measure(folder: Path, part: int, of: int, seed: int = 0, *, many: bool = False) -> None:
    """Append the records of every ``of``-th problem to a file in the folder."""
    with (folder / f"{part}-of-{of}-seed-{seed}.jsonl").open("a", encoding="utf-8") as out:
        for set_name, name, problem in made(seed, part, of, many=many):
            record = measured(problem, seed)
            if record is not None:
                record |= {"set": set_name, "name": name, "seed": seed, "kind": problem.kind}
                out.write(json.dumps(record) + "\n")
                out.flush()


class Table:
    """The records as arrays: one row of measurements for each way, and one of outcomes for each problem.

    Attributes
    ----------
    records
        Length R.
    x, gain, owner
        Measurements (W, M), gains over the weights without a shortcut (W,), and number of the record (W,).

    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = [one for one in records if one["ways"]]
        ways = [(k, way) for k, one in enumerate(self.records) for way in one["ways"]]
        self.x = np.array([way["x"] for _, way in ways])
        self.worst = np.array([way["worst"] for _, way in ways])
        self.passes = np.array([way["passes"] for _, way in ways])
        self.owner = np.array([k for k, _ in ways])
        self.gain = self.worst - self.column("shut")[self.owner]

    def column(self, name: str) -> Array:
        """Return one figure of every record, shape (R,)."""
        return np.array([one[name] for one in self.records], np.float64)

    def text(self, name: str) -> npt.NDArray[np.str_]:
        """Return one word of every record, shape (R,)."""
        return np.array([one[name] for one in self.records])

    def outcome(self, expected: Array, least: float) -> Array:
        """Return the worst group under the weights of ``cues`` with these expected gains (W,), shape (R,)."""
        found, best = self.column("by_gate"), np.full(len(self.records), least)
        is_open = self.column("open")
        for way in np.flatnonzero(self.passes):
            k = self.owner[way]
            if not is_open[k] and expected[way] > best[k]:
                best[k], found[k] = expected[way], self.worst[way]
        return found


def fitted(x: Array, gain: Array) -> GradientBoostingRegressor:
    """Return the trees of these rows."""
    return GradientBoostingRegressor(**TREES).fit(x, np.clip(gain, *CLIP))


def held_out(table: Table, folds: Iterator[npt.NDArray[np.bool_]]) -> Array:
    """Return the expected gain of every way by trees that have not seen its source table, shape (W,)."""
    expected, families = np.full(len(table.x), -1.0), table.text("family")
    for held in folds:
        seen = ~held & ~np.isin(families, families[held])
        train, test = seen[table.owner], held[table.owner]
        expected[test] = fitted(table.x[train], table.gain[train]).predict(table.x[test])
    return expected


def by_family(table: Table) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield which records are held out, for each fold of source tables."""
    folds = GroupKFold(FOLDS, shuffle=True, random_state=SEED)
    for _, test in folds.split(table.records, groups=table.text("family")):
        yield np.isin(np.arange(len(table.records)), test)


def by_set(table: Table) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield the records of each set."""
    for name in sorted(set(table.text("set"))):
        yield table.text("set") == name


def summary(table: Table, found: Array, title: str) -> list[str]:
    """Return lines: gain over the floor of honest and of planted problems, and share of the way."""
    kinds, sets, lines = table.text("kind"), table.text("set"), []
    honest = np.array([str(kind).startswith(HONEST) or "no cue" in str(kind) for kind in kinds])
    parts = {
        "without a shortcut": honest,
        "planted and generated": ~honest & ~np.isin(sets, ("drawn", "pixels", "made")),
        "drawn": sets == "drawn",
        "made": ~honest & (sets == "made"),
        "pixels": ~honest & (sets == "pixels"),
    }
    change, way = found - table.column("floor"), table.column("oracle") - table.column("floor")
    for name, rows in parts.items():
        if not rows.any():
            continue
        far = rows & (way > 0.03)
        share = np.clip(change[far] / way[far], -1.0, 1.0).mean() if far.any() else np.nan
        lines.append(
            f"{title:24s} {name:22s} {rows.sum():5d} {change[rows].mean():+.4f} "
            f"least {change[rows].min():+.3f} below -.1: {(change[rows] < -0.1).sum():3d} "
            f"share {share:.3f} ({far.sum()})"
        )
    return lines


def stored(model: GradientBoostingRegressor) -> dict[str, Any]:
    """Return the trees in the form of ``operators.cues.decision.expected_gain.Trees``."""
    nodes: dict[str, list[Any]] = {name: [] for name in ("feature", "threshold", "left", "right", "value")}
    roots = []
    for (one,) in model.estimators_:
        start, tree = len(nodes["feature"]), one.tree_
        roots.append(start)
        leaf = tree.children_left < 0
        nodes["feature"] += np.where(leaf, -1, tree.feature).tolist()
        nodes["threshold"] += [float(f"{value:.8g}") for value in np.where(leaf, 0.0, tree.threshold)]
        nodes["left"] += np.where(leaf, 0, tree.children_left + start).tolist()
        nodes["right"] += np.where(leaf, 0, tree.children_right + start).tolist()
        added = np.where(leaf, tree.value[:, 0, 0] * model.learning_rate, 0.0)
        nodes["value"] += [float(f"{value:.6g}") for value in added]
    return {"names": NAMES, "base": float(model.init_.constant_[0, 0]), "roots": roots, **nodes}


def read(folder: Path) -> Table:
    """Return the records of a folder, sorted."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    records: list[Record] = [json.loads(line) for line in lines]
    for record in records:
        record["family"] = family(record["name"], record["set"])
    return Table(sorted(records, key=lambda one: (one["set"], one["name"], one["seed"])))


def main(command: str, folder: Path, *rest: str) -> None:
    """Measure, or fit and print."""
    if command not in COMMANDS:
        raise SystemExit(f"no command {command!r}; there are {', '.join(COMMANDS)}")
    many = command.endswith("-many")
    if command.startswith("measure"):
        part, of, seed = [*map(int, rest), *(0, 1, 0)[len(rest) :]]
        measure(folder, part, of, seed, many=many)
        return
    table = read(folder)
    expected = held_out(table, by_set(table) if command.startswith("sets") else by_family(table))
    lines = summary(table, table.column("by_gate"), "gate alone")
    lines += summary(table, table.column("shut"), "without robust weights")
    for least in sorted(LEAST_OF_MANY.values() if many else {*LEAST.values(), 0.25}):
        lines += summary(table, table.outcome(expected, least), f"expected gain of {least:g}")
    print("\n".join(lines))
    if command.startswith("fit"):
        path = STORED_OF_MANY if many else STORED
        path.write_text(json.dumps(stored(fitted(table.x, table.gain))) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
