"""Cutting against a byte-by-byte reference, for any text, shard size and block size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.row_ranges import ByteRange, RowScanError, cut, first_failing, n_fields, row_spans


def reference_rows(data: bytes, quoted: bool) -> list[tuple[int, int]]:
    """Spans of the rows that are not blank, one byte at a time."""
    spans, start, inside = [], 0, False
    for place, byte in enumerate(data):
        inside ^= quoted and byte == ord('"')
        if byte in b"\n\r" and not inside:
            spans.append((start, place + 1))
            start = place + 1
    spans.append((start, len(data)))
    blank = b"\r\n" if quoted else bytes(range(33))
    return [(a, b) for a, b in spans if data[a:b].strip(blank)]


def blocks(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


jsonl_text = st.lists(st.sampled_from([*"ab \t\n\r\"'{}é€😀", "\r\n", "\n\n"])).map("".join).map(str.encode)
field = st.one_of(
    st.text(st.sampled_from("ab é€"), max_size=4),
    st.text(st.sampled_from('ab,"\n\ré😀'), max_size=6).map(lambda s: '"' + s.replace('"', '""') + '"'),
)
csv_text = st.lists(
    st.tuples(
        st.lists(field, min_size=1, max_size=3).map(",".join), st.sampled_from(["\n", "\r\n", "\n\n", "\r"])
    )
).map(lambda rows: "".join(row + end for row, end in rows).encode())


@pytest.mark.parametrize("quoted", [True, False])
@given(data=st.data(), size=st.integers(1, 60), block=st.integers(1, 40), drop=st.booleans())
def test_pieces_hold_the_reference_rows(
    quoted: bool, data: st.DataObject, size: int, block: int, drop: bool
) -> None:
    text = data.draw(csv_text if quoted else jsonl_text)
    text = text[:-1] if drop and text[-1:] == b"\n" else text  # no newline after the last row
    rows = reference_rows(text, quoted)
    pieces = list(cut(blocks(text, block), 0, size, separator="," if quoted else ""))
    for piece in pieces:
        held = [span for span in rows if piece.start <= span[0] and span[1] <= piece.stop]
        assert piece.n_rows == len(held) > 0
        assert piece.stop - piece.start <= size or piece.n_rows == 1
    assert sum(piece.n_rows for piece in pieces) == len(rows)
    assert all(a.stop <= b.start for a, b in itertools.pairwise(pieces))


@given(text=csv_text)
def test_row_spans_match_the_reference(text: bytes) -> None:
    starts, stops = row_spans(text, separator=",")
    assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == reference_rows(text, quoted=True)


def test_pieces_are_as_large_as_they_may_be() -> None:
    assert list(cut([b"1234\n" * 5], 0, 10, separator="")) == [
        ByteRange(0, 10, 2),
        ByteRange(10, 20, 2),
        ByteRange(20, 25, 1),
    ]


@given(text=st.binary(max_size=40), block=st.integers(1, 8))
@example(text="é".encode(), block=1)
@example(text=b"ab\xc3", block=2)
def test_utf8_is_judged_as_python_judges_it(text: bytes, block: int) -> None:
    wrong = first_wrong_byte(text)
    if wrong is None:
        list(cut(blocks(text, block), 0, 100, separator=""))
        return
    with pytest.raises(RowScanError) as caught:
        list(cut(blocks(text, block), 0, 100, separator=""))
    assert (caught.value.offset, caught.value.kind) == (wrong, "encoding")


def first_wrong_byte(text: bytes) -> int | None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (b'a,5" pipe\n', 3),
        (b'a,b\n"open,c\n', 4),
        (b'"a""b,\n', 0),
        (b'"a" "b"\n', 4),
        (b'a,b\n\n"x","y\n', 9),
    ],
)
@pytest.mark.parametrize("block", [1, 3, 100])
def test_stray_and_open_quotes_are_named(text: bytes, offset: int, block: int) -> None:
    with pytest.raises(RowScanError) as caught:
        list(cut(blocks(text, block), 0, 5, separator=","))
    assert (caught.value.offset, caught.value.kind) == (offset, "quote")


@given(flags=st.lists(st.booleans(), min_size=1).filter(any))
def test_first_failing_finds_the_first(flags: list[bool]) -> None:
    found = first_failing(len(flags), lambda low, high: any(flags[low:high]))
    assert found == flags.index(True)


def test_commas_in_quotes_separate_nothing() -> None:
    assert [n_fields(row) for row in (b"a", b"a,b", b'"a,b",c', b'"a"",b",,')] == [1, 2, 2, 3]
