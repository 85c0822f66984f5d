"""Widths of Roaring bitmaps agree with the library that makes them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.tables.roaring import CONTAINER, width_of

pyroaring = pytest.importorskip("pyroaring")

RUNS = st.lists(st.tuples(st.integers(0, 2**22), st.integers(1, 70_000)), max_size=8)


def wide(*bitmaps: tuple[int, bytes]) -> bytes:
    """A bitmap of 64 bits."""
    return struct.pack("<q", len(bitmaps)) + b"".join(
        struct.pack("<I", high) + data for high, data in bitmaps
    )


@given(runs=RUNS, single=st.sets(st.integers(0, 2**32 - 1), max_size=50), optimised=st.booleans())
def test_the_width_ends_with_the_container_of_the_last_row(
    runs: list[tuple[int, int]], single: set[int], optimised: bool
) -> None:
    rows = pyroaring.BitMap(single)
    for start, length in runs:
        rows.add_range(start, start + length)
    if optimised:
        rows.run_optimize()
    ends = (rows.max() // CONTAINER + 1) * CONTAINER if rows else 0
    data = rows.serialize()
    assert width_of(wide((0, data))) == ends
    assert width_of(wide((0, data), (7, pyroaring.BitMap([3]).serialize()))) == (7 << 32) + CONTAINER


@pytest.mark.parametrize("rows", [range(5), range(0, 9, 2), range(0, 20_000, 2)], ids=["run", "few", "map"])
def test_half_a_bitmap_is_an_error(rows: range) -> None:
    whole = wide((0, pyroaring.BitMap(rows).serialize()))
    assert width_of(whole) == CONTAINER
    for length in {*range(min(len(whole), 50)), len(whole) - 1}:
        with pytest.raises(ValueError, match="a bitmap"):
            width_of(whole[:length])


def test_other_bytes_are_an_error() -> None:
    with pytest.raises(ValueError, match="begins with another number"):
        width_of(wide((0, b"forged" * 9)))
    with pytest.raises(ValueError, match="ends within"):
        width_of(struct.pack("<q", 2**62))
