"""The bars that DBSCAN was set, judged from what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.benchmarks.harness import Row, bar, figure, ratio

GIB = 2**30
SKLEARN, INTELEX, PRODUCT = "scikit-learn", "scikit-learn-intelex", "two-pass product"
# Row, peer, and how many times its seconds ours must go into.
SPEEDS = [
    ("20000x64-tight", SKLEARN, 55.0),
    ("20000x64-tight", INTELEX, 14.0),
    ("20000x512-tight", SKLEARN, 16.0),
    ("20000x512-tight", INTELEX, 7.0),
    ("100000x64-tight", PRODUCT, 35.0),
    ("100000x512-tight", PRODUCT, 35.0),
    ("20000x16-noise", INTELEX, 0.95),
    ("20000x64-noise", INTELEX, 0.95),
    ("20000x512-noise", INTELEX, 0.95),
]
MEMORY = [("1000000x64-tight", 2.0), ("1000000x512-tight", 8.0)]
HALF_PAIRS = 15.0
MAX_FITS, MIN_GRID = 10.0, 100.0
FITS = {"mean fit": "mean single fits of its cells", "half": "single fits with half of all pairs near"}

Measured = Mapping[str, Any]


def bars(measured: Measured) -> list[Row]:
    """One row per bar; "not measured" where its row was not run."""
    rows = measured.get("rows", {})
    found = [_speed(rows, key, peer, wanted) for key, peer, wanted in SPEEDS]
    found += [_memory(rows, key, wanted) for key, wanted in MEMORY]
    return [*found, _half_pairs(measured), *_grid(measured)]


def half_pairs(n: int, columns: int, peak: float) -> float:
    """Seconds of one product of half of all pairs at the machine's peak."""
    return n * (n - 1) / 2 * 2 * columns / peak


def _entry(rows: Measured, key: str, peer: str) -> Any:
    return rows.get(key, {}).get("peers", {}).get(peer, {})


def _speed(rows: Measured, key: str, peer: str, wanted: float) -> Row:
    ours, theirs = (_entry(rows, key, name).get("median") for name in ("ours", peer))
    return _at_least(f"{key} against {peer}", wanted, theirs / ours if ours and theirs else None)


def _memory(rows: Measured, key: str, wanted: float) -> Row:
    peak = _entry(rows, key, "ours").get("peak")
    name = f"{key}, peak of the process"
    if peak is None:
        return _unmeasured(name, f"<= {wanted:g} GiB")
    return bar(name, f"<= {wanted:g} GiB", f"{peak / GIB:.2f} GiB", peak <= wanted * GIB)


def _half_pairs(measured: Measured) -> Row:
    key = "1000000x64-tight"
    ours = _entry(measured.get("rows", {}), key, "ours").get("median")
    peak = measured.get("peak", {}).get("peak", {}).get("flops")
    seconds = half_pairs(1_000_000, 64, peak) if peak else None
    at_peak = f" ({figure(seconds)} s at {peak / 1e9:.0f} GFLOP/s)" if seconds else ""
    times = seconds / ours if seconds and ours else None
    return _at_least(f"{key} against a product of half the pairs at peak{at_peak}", HALF_PAIRS, times)


def _grid(measured: Measured) -> Iterator[Row]:
    for row in measured.get("grid", {}).values():
        name, whole = f"grid of 13 x 8 with its choice, 20,000 x 64 {row['regime']}", row["grid"]["median"]
        for kind, text in FITS.items():
            fits = whole / row[kind]["median"]
            yield bar(f"{name}, in {text}", f"<= {MAX_FITS:g}", figure(fits), fits <= MAX_FITS)
        yield _at_least(f"{name}, against scikit-learn", MIN_GRID, row["scikit-learn"] / whole)


def _at_least(name: str, wanted: float, found: float | None) -> Row:
    if found is None:
        return _unmeasured(name, f">= {wanted:g}x")
    return bar(name, f">= {wanted:g}x", ratio(found), found >= wanted)


def _unmeasured(name: str, wanted: str) -> Row:
    return {"bar": name, "wanted": wanted, "measured": "not measured", "met": "-"}
