"""The README's tables, from what was measured and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.dbscan.bars import FITS, bars
from tests.benchmarks.dbscan.peers import PEERS
from tests.benchmarks.harness import Row, Timing, figure, ratio, table, write_section

README = Path(__file__).parents[1] / "README.md"
GIB = 2**30

Measured = Mapping[str, Any]


def write(measured: Measured, readme: Path = README) -> None:
    """Bring the sections of a README up to date."""
    for marker, text in sections(measured).items():
        write_section(readme, marker, text)


def sections(measured: Measured) -> dict[str, str]:
    """Text of each section by its marker."""
    rows = sorted(measured.get("rows", {}).values(), key=lambda row: (row["n"], row["d"]))
    peak = measured.get("peak", {}).get("peak", {}).get("flops")
    return {
        "dbscan-machine": _machines(measured),
        "dbscan-bars": table(bars(measured)),
        "dbscan": table([_row(row, peak) for row in rows]),
        "dbscan-grid": table([_grid(row) for row in measured.get("grid", {}).values()]),
        "dbscan-threads": table([_threads(row) for row in measured.get("threads", {}).values()]),
    }


def _machines(measured: Measured) -> str:
    """Distinct machines and versions, with the load of the machine while it was measured."""
    found: dict[str, list[float]] = {}
    for kind in measured.values():
        for row in kind.values():
            load = re.search(r", load ([\d.]+)", row["machine"])
            where = row["machine"].replace(load.group(), "") if load else row["machine"]
            found.setdefault(where, []).append(float(load.group(1)) if load else 0.0)
    lines = [f"- {where}. Load when started {min(load)} to {max(load)}." for where, load in found.items()]
    return "\n".join(lines)


def _row(row: Mapping[str, Any], peak: float | None) -> Row:
    entries = row["peers"]
    ours = entries["ours"].get("median")
    noise = "-" if row["noise"] is None else f"{row['noise']:.1%}"
    found = {"rows": f"{row['n']:,}", "d": row["d"], "regime": row["regime"], "near": f"{row['near']:.0%}"}
    found |= {"noise": noise}
    for name in PEERS:
        entry = entries.get(name, {"reason": "-"})
        if name == "two-pass product" and entry.get("reason") == "time" and peak and row["n"] == 10**6:
            entry = {"reason": "at peak", "estimate": two_pass_at_peak(row["n"], row["d"], peak)}
        found[name] = _cell(name, entry, ours)
    return found | {"labels": _agreement(entries), "fastest": _fastest(entries)}


def two_pass_at_peak(n: int, d: int, peak: float) -> float:
    """Seconds of two passes over all pairs at the machine's peak: a bound, not a measurement."""
    return 2 * n * n * 2 * d / peak


def _cell(name: str, entry: Mapping[str, Any], ours: float | None) -> str:
    if "reason" in entry:
        return _left_out(entry, ours)
    seconds = str(Timing(entry["median"], entry["low"], entry["high"]))
    if name == "ours":
        return f"**{seconds}**"
    parts = [seconds, ratio(entry["median"] / ours)] if ours else [seconds]
    return ", ".join(parts if PEERS[name].exact else [*parts, f"ARI {entry['ari']:.3f}"])


def _left_out(entry: Mapping[str, Any], ours: float | None) -> str:
    """Return the reason for which a peer was not run."""
    if "bytes" in entry:
        return f"memory (~{figure(entry['bytes'] / GIB)} GiB)"
    if "estimate" in entry:
        times = f", {ratio(entry['estimate'] / ours)}" if ours else ""
        return f"{entry['reason']} (~{figure(entry['estimate'])} s{times})"
    return str(entry["reason"])


def _agreement(entries: Mapping[str, Any]) -> str:
    """Return whether the exact peers that ran gave our labels."""
    ran = {name: e for name, e in entries.items() if name != "ours" and PEERS[name].exact and "ari" in e}
    unequal = [
        f"{name}: {entry['differ'] or 'some'} rows, ARI {entry['ari']:.5f}"
        for name, entry in ran.items()
        if entry["differ"] or entry["ari"] < 1
    ]
    if not ran or "median" not in entries["ours"]:
        return "-"
    return f"equal ({len(ran)} of {len(ran)})" if not unequal else "; ".join(unequal)


def _fastest(entries: Mapping[str, Any]) -> str:
    """Return the name of the fastest peer of the row."""
    seconds = {name: entry["median"] for name, entry in entries.items() if "median" in entry}
    if "ours" not in seconds:
        return "-"
    better = [
        f"**{name} {seconds['ours'] / s:.2g}x**{'' if PEERS[name].exact else ' (not exact)'}"
        for name, s in sorted(seconds.items(), key=lambda item: item[1])
        if s < seconds["ours"]
    ]
    return ", ".join(better) or "ours"


def _timing(found: Mapping[str, float]) -> str:
    return str(Timing(found["median"], found["low"], found["high"]))


def _grid(row: Mapping[str, Any]) -> Row:
    whole = row["grid"]["median"]
    return {
        "regime": row["regime"],
        "ours, grid and choice": _timing(row["grid"]),
        "ours, mean fit": _timing(row["mean fit"]),
        "ours, fit with half of all pairs near": _timing(row["half"]),
        "grid in either": ", ".join(figure(whole / row[kind]["median"]) for kind in FITS),
        "scikit-learn, cells measured": ", ".join(figure(cell) for cell in row["cells"]),
        "scikit-learn, all cells (extrapolated)": f"{figure(row['scikit-learn'])}, "
        f"{ratio(row['scikit-learn'] / whole)}",
    }


def _threads(row: Mapping[str, Any]) -> Row:
    return {
        "rows": f"{row['n']:,}",
        "d": row["d"],
        "regime": row["regime"],
        "1 thread, wall": _timing(row["1"]),
        "2 threads, wall": _timing(row["2"]),
        "gain": ratio(row["1"]["median"] / row["2"]["median"]),
        "labels": "equal" if row["equal"] else "**not equal**",
    }
