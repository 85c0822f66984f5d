"""Weights of alpha-LPBoost against HiGHS, CLARABEL and CVXPY: CPU seconds of one thread.

make bench ARGS="lp [--large | --only 50000-* | --cold] [--write-readme]"
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import (
    Row,
    Spent,
    bar,
    figure,
    machine,
    measure,
    ratio,
    table,
    write_section,
)
from tests.benchmarks.lp import peers
from tests.benchmarks.lp.cold import measure_cold
from tests.benchmarks.lp.games import Game

HERE = Path(__file__).parent
PACKAGES = ("numpy", "scipy", "highspy", "cvxpy", "clarabel")
ROUNDS, BETA, REPEATS = 100, 100.0, 3
GAMES = [
    Game(n, kind, binary)
    for n in (10_000, 50_000)
    for kind in ("independent", "boosted")
    for binary in (True, False)
]
FORMS = {
    "highspy, warm": lambda L, budget: peers.highs_warm(L, budget),
    "highspy, simplex": lambda L, budget: peers.highs_cold(L, budget, "simplex"),
    "highspy, IPM": lambda L, budget: peers.highs_cold(L, budget, "ipm"),
    "CVXPY, HiGHS": lambda L, budget: peers.cvxpy_dual(L, budget, "HIGHS"),
    "CVXPY, CLARABEL": lambda L, budget: peers.cvxpy_dual(L, budget, "CLARABEL"),
}
LOAD = re.compile(r", load ([\d.]+)")
WANTED = {"highspy": 5.0, "CVXPY": 10.0}
WANTED_NEWTON = 15.0
"""Against CLARABEL."""


def rounds(game: Game, budget: float) -> dict[str, Any]:
    """100 rounds by everyone: seconds and gap; of a peer also its ratio to ours, up to the same round."""
    losses = game.losses(ROUNDS)
    runs: dict[str, Any] = {"ours": lambda: _spent(peers.ours(losses))}
    for name, run in FORMS.items():
        runs[name] = lambda run=run: _spent(run(losses, budget))
    found = measure(runs, {"ours": REPEATS})
    mine = found["ours"]
    entries: dict[str, Any] = {"ours": {"seconds": str(mine), "gap": mine.result.gap}}
    for name in FORMS:
        path = found[name].result
        done = len(path.seconds)
        scale = mine.median / mine.result.seconds[-1]  # the last repeat's rounds, the median's seconds
        entries[name] = {
            "seconds": path.seconds[-1],
            "rounds": done,
            "sampled": path.sampled,
            "ratio": path.seconds[-1] / (mine.result.seconds[done - 1] * scale),
            "gap": path.gap,
        }
    return entries


def _spent(path: peers.Path) -> Spent:
    return Spent(path.seconds[-1], path)


def regularised(game: Game, t: int) -> dict[str, Any]:
    """One solve with the entropy term, from no start."""
    losses = game.losses(t)
    runs = {
        "ours": lambda: Spent(*peers.newton(losses, BETA)),
        "CLARABEL": lambda: Spent(*peers.clarabel_alone(losses, BETA)),
    }
    found = measure(runs, {"ours": REPEATS, "CLARABEL": 1})
    return {
        "t": t,
        **{name: {"seconds": str(timing), "gap": timing.result} for name, timing in found.items()},
        "ratio": found["CLARABEL"].median / found["ours"].median,
    }


def sections(measured: Mapping[str, Any]) -> dict[str, str]:
    """The README's tables."""
    done = [(game, measured[game.key]) for game in GAMES if game.key in measured]
    loads = sorted(float(load) for _, entry in done for load in LOAD.findall(entry["machine"]))
    machines = dict.fromkeys(LOAD.sub("", entry["machine"]) for _, entry in done)
    lines = [f"- {line}. Load when started {loads[0]} to {loads[-1]}." for line in machines]
    return {
        "lp-machine": "\n".join(lines) or "Not measured yet.",
        "lp-bars": table([row for game in GAMES for row in _bars(game, measured.get(game.key))]),
        "lp": table([_rounds_row(game, entry["rounds"]) for game, entry in done]),
        "lp-entropy": table([_newton_row(game, row) for game, entry in done for row in entry["newton"]]),
    }


def _bars(game: Game, entry: Mapping[str, Any] | None) -> list[Row]:
    if entry is None:
        return [{"bar": game.key, "wanted": "as above", "measured": "not measured", "met": "-"}]
    rows = []
    for family, wanted in WANTED.items():
        forms = {name: e["ratio"] for name, e in entry["rounds"].items() if name.startswith(family)}
        best = min(forms, key=forms.__getitem__)
        met = forms[best] >= wanted and entry["rounds"]["ours"]["gap"] <= 1e-7
        rows.append(
            bar(
                f"{game.key}, {ROUNDS} rounds",
                f">= {wanted:.0f}x {family}",
                f"{ratio(forms[best])} ({best})",
                met,
            )
        )
    worst = min(row["ratio"] for row in entry["newton"])
    met = worst >= WANTED_NEWTON and max(row["ours"]["gap"] for row in entry["newton"]) <= 1e-7
    rows.append(bar(f"{game.key}, with entropy", f">= {WANTED_NEWTON:.0f}x CLARABEL", ratio(worst), met))
    return rows


def _rounds_row(game: Game, entries: Mapping[str, Any]) -> Row:
    row: dict[str, object] = {
        "game": game.key,
        "ours": f"**{entries['ours']['seconds']}**, gap {entries['ours']['gap']:.0e}",
    }
    for name in FORMS:
        entry = entries[name]
        about = "~" if entry["sampled"] else ""
        cut = f" to round {entry['rounds']}" if entry["rounds"] < ROUNDS else ""
        row[name] = f"{about}{figure(entry['seconds'])}{cut}, {ratio(entry['ratio'])}, gap {entry['gap']:.0e}"
    return row


def _newton_row(game: Game, row: Mapping[str, Any]) -> Row:
    cells = {name: f"{row[name]['seconds']}, gap {row[name]['gap']:.0e}" for name in ("ours", "CLARABEL")}
    return {"game": game.key, "models": row["t"], **cells, "ratio": ratio(row["ratio"])}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, keep the rows, print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.lp", description=__doc__)
    parser.add_argument(
        "--only", nargs="*", default=["10000-*"], metavar="GAME", help="such as 50000-*; default 10000-*"
    )
    parser.add_argument("--cold", action="store_true", help="one solve from no start, and no game")
    parser.add_argument("--large", action="store_true", help="all games")
    parser.add_argument(
        "--seconds", type=float, default=60, help="CPU seconds after which a peer is cut, default 60"
    )
    parser.add_argument(
        "--models", type=int, nargs="+", default=[30, 100], help="models of the games with entropy"
    )
    parser.add_argument(
        "--store", type=Path, default=HERE / "measured.json", help="file of what was measured so far"
    )
    parser.add_argument("--write-readme", action="store_true", help="bring the README's tables up to date")
    options = parser.parse_args(arguments)
    if options.cold:
        show({"lp-cold": f"{machine(PACKAGES)}.\n\n{measure_cold()}"}, options.write_readme)
        return
    measured = json.loads(options.store.read_text()) if options.store.exists() else {}
    patterns = ["*"] if options.large else options.only
    for game in (game for game in GAMES if any(fnmatch(game.key, pattern) for pattern in patterns)):
        entry = {"machine": machine(PACKAGES), "rounds": rounds(game, options.seconds)}
        measured[game.key] = entry | {"newton": [regularised(game, t) for t in options.models]}
        options.store.write_text(json.dumps(measured, indent=1) + "\n")
    show(sections(measured), options.write_readme)


def show(found: Mapping[str, str], write_readme: bool) -> None:
    """Print sections of the README, and write them into it where that is asked for."""
    for name, text in found.items():
        print(f"{text}\n")
        if write_readme:
            write_section(HERE.parent / "README.md", name, text)


if __name__ == "__main__":
    main()
