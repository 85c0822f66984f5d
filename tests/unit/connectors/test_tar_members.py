"""Tars that are read as Python's ``tarfile`` reads them, and forged ones, for which it loops or fails."""

import io
import tarfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.base import ConnectorError, CorruptError
from connectors.registry import open_source
from connectors.tar_members import NotAFileError, TarError, tar_members

END = b"\0" * 1024


def member(name: str, data: bytes, kind: bytes = b"0", size: int | None = None) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = len(data) if size is None else size, kind
    return info.tobuf(tarfile.GNU_FORMAT) + data + b"\0" * (-len(data) % 512)


def pax(kind: bytes = b"x", **records: str) -> bytes:
    found = b""
    for key, value in records.items():
        rest = f" {key.replace('__', '.')}={value}\n".encode()
        length = next(n for n in range(len(rest), len(rest) + 9) if len(str(n)) + len(rest) == n)
        found += str(length).encode() + rest
    return member("pax", found, kind)


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=150)


@given(
    st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=4).map("/".join), st.binary(max_size=1500))),
    st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_members_are_those_of_tarfile(files: list[tuple[str, bytes]], format: int) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1.5 if format == tarfile.PAX_FORMAT else 1
            try:
                tar.addfile(info, io.BytesIO(data))
            except ValueError:
                continue  # too long for that format
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    expected = []
    with tarfile.open(fileobj=io.BytesIO(stream.getvalue())) as tar:
        for info in tar:
            if info.isreg():
                content = tar.extractfile(info)
                assert content is not None
                stop = info.offset_data + -(-info.size // 512) * 512
                expected.append((info.name, info.offset, stop, content.read()))
    found = [*tar_members(io.BytesIO(stream.getvalue()), with_data=True)]
    assert [(one.name, one.start, one.stop, one.data) for one in found] == expected
    bare = [*tar_members(io.BytesIO(stream.getvalue()), with_data=False)]
    assert [(one.start, one.stop, one.data) for one in bare] == [(o.start, o.stop, b"") for o in found]
    for one in found:  # a part that begins with a member is a tar as well
        part = stream.getvalue()[one.start : one.stop]
        assert [inner.data for inner in tar_members(io.BytesIO(part), with_data=True)] == [one.data]


def large(size: int) -> bytes:
    """Return the header of a file of many bytes, whose number is written in binary."""
    return member("b.txt", b"", size=size)


def below_zero() -> bytes:
    """Return the header of a file of -1 bytes in octal digits, with its checksum."""
    zero, negative = b"00000000000\0" * 2, b"-0000000001\0" + b"00000000000\0"
    header = member("b.txt", b"").replace(zero, negative)
    blank = header[:148] + b" " * 8 + header[156:]
    assert b"-0000000001" in blank
    return blank[:148] + b"%06o\0 " % sum(blank) + blank[156:]


FORGED = {
    "size of years": member("a.txt", b"1") + large(10**18) + b"x" * 512 + END,
    "size of years in a pax header": pax(size="9" * 18) + member("b.txt", b"1") + END,
    "size of 4,000 digits": pax(size="9" * 4000) + member("b.txt", b"1") + END,
    "size below zero": member("a.txt", b"1") + pax(size="-1536") + member("b.txt", b"1") + END,
    "size of all members": pax(b"g", size="-5") + member("b.txt", b"123") + END,
    "long name of gigabytes": member("././@LongLink", b"a.txt\0", b"L", size=2**33) + member("b", b"") + END,
    "digits without an end": member("pax", b"9" * 2**20, b"x") + member("b.txt", b"1") + END,
    "words without an end": member("pax", b"1 hdrcharset=B" * 70_000, b"x") + member("b.txt", b"1") + END,
    "sparse": pax(GNU__sparse__realsize="9" * 12) + member("b.txt", b"1\n0\n") + END,
    "cut off": member("b.txt", b"1" * 600)[:-300],
    "no member": member("a.txt", b"1") + pax(path="b.txt") + END,
    "wrong checksum": member("a.txt", b"1") + member("b.txt", b"1").replace(b"b.txt", b"c.txt") + END,
    "negative octal": below_zero() + b"1" + b"\0" * 511 + END,
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_tars_are_refused_at_once(case: str, tmp_path: Path) -> None:
    """The first one, of three kilobytes, kept tarfile busy without an end, and so ``rowsieve validate``."""
    (tmp_path / "x.tar").write_bytes(FORGED[case])
    start = time.process_time()
    with pytest.raises(CorruptError, match=r"x\.tar is not a whole tar"):
        open_source(str(tmp_path / "x.tar")).list()
    assert time.process_time() - start < 5


@pytest.mark.parametrize("header", [member("././@LongLink", b"a.txt\0", b"L"), pax(path="a.txt")])
def test_thousands_of_extended_headers_are_no_recursion(header: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(header * 3000 + member("b", b"1") + END)
    source = open_source(str(tmp_path / "x.tar"))
    listing = source.list()
    assert source.read(listing.shards[0], ["txt"], listing.schema).to_pydict() == {"txt": ["1"]}


@given(st.binary(max_size=3000), st.integers(0, 5000), st.integers(0, 3))
def test_any_bytes_end_in_members_or_an_error(noise: bytes, place: int, kind: int) -> None:
    folder = member("d", b"", b"5")
    whole = [b"", member("a.txt", b"123"), pax(path="é.txt") + member("b", b"1"), folder][kind]
    data = (whole + member("c.txt", b"45") + END)[:place] + noise
    with suppress(TarError, NotAFileError):
        assert all(one.stop <= len(data) for one in tar_members(io.BytesIO(data), with_data=True))


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"")
    with pytest.raises(ConnectorError, match=r"x\.tar is empty"):
        open_source(str(tmp_path / "x.tar")).list()
