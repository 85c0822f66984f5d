"""``source.encoding``: files in other encodings are cut, read and refused as those in UTF-8 are."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from connectors import ConnectorError, open_source
from connectors.base import SourceSpec
from connectors.csv_source import Csv
from connectors.encoding_guess import guess_encoding
from connectors.text_encoding import UnknownEncodingError, find_encoding

WORDS = {
    "latin-1": "Ångström Köln ÿ",
    "cp1252": "“Zoë” costs 5 € Š",
    "koi8-r": "Москва",
    "utf-8-sig": "Köln €",
    "utf-16": "Köln 京都 🙂 ਊ č̍ ∢",  # ਊ, č̍ and ∢ have code units whose bytes are LF, CR and a quote
    "utf-16-le": "Köln 京都 🙂 ਊ ∢",
    "utf-16-be": "Köln 京都 🙂 ਊ ∢",
    "gb18030": "京都 🙂 丂",
    "shift_jis": "京都 ソ表",
}
"""Texts whose bytes look like row ends, separators and quotes where they are taken for another encoding."""


def _csv(text: str, n: int = 60) -> str:
    cells = [f'{i},{text[i % len(text) :]},"{text}, ""{i}""\n{text}"' for i in range(n)]
    return "\r\n".join([f"id,{text.split()[0].strip('“”,')},note", *cells, ""])


def _read(path: Path, shard_bytes: int, encoding: str) -> tuple[pa.Table, int]:
    source = open_source(str(path), encoding=encoding, shard_bytes=shard_bytes)
    listing = source.list()
    parts = [source.read(shard, listing.schema.names, listing.schema) for shard in listing.shards]
    return pa.concat_tables(parts), len(parts)


@pytest.mark.parametrize("encoding", WORDS)
@pytest.mark.parametrize("block", [16, 64])
def test_csv_of_any_encoding_is_the_table_of_utf8(
    tmp_path: Path, encoding: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _csv(WORDS[encoding])
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode(encoding)))
    (tmp_path / "u.csv").write_bytes(text.encode())
    expected, _ = _read(tmp_path / "u.csv", 2**20, "utf-8")
    assert expected.num_rows == 60
    monkeypatch.setattr("connectors.text_source.TextSource._blocks.__defaults__", (block,))
    for name in ("a.csv", "a.csv.gz"):
        found, parts = _read(tmp_path / name, 500, encoding)
        assert found.combine_chunks().equals(expected.combine_chunks())
        assert (parts > 1) == (name == "a.csv")


@pytest.mark.parametrize("encoding", WORDS)
def test_jsonl_of_any_encoding_is_the_table_of_utf8(tmp_path: Path, encoding: str) -> None:
    text = WORDS[encoding]
    rows = [{"id": i, "t": text[i % len(text) :]} | ({"später": 1} if i > 50 else {}) for i in range(60)]
    if encoding in ("koi8-r", "gb18030", "shift_jis"):
        rows = [{key.replace("später", "later"): value for key, value in row.items()} for row in rows]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_bytes(lines.encode(encoding))
    (tmp_path / "u.jsonl").write_bytes(lines.encode())
    expected, _ = _read(tmp_path / "u.jsonl", 600, "utf-8")
    found, parts = _read(tmp_path / "a.jsonl", 600, encoding)
    assert parts > 1
    assert found.combine_chunks().equals(expected.combine_chunks())


def test_rows_are_located_and_first_rows_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(_csv(WORDS["utf-16"]).encode("utf-16"))
    source = open_source(str(path), encoding="utf-16", shard_bytes=1000)
    listing = source.list()
    last = listing.shards[-1]
    assert source.locate(last, last.n_rows - 1) == "line 120"  # a header and 60 rows of two lines
    first = source.narrowed(listing.shards[0], 2)  # type: ignore[attr-defined]
    table = source.read(first, ["id"], listing.schema)
    assert table["id"].to_pylist() == [*range(first.n_rows)]


BAD = {
    "undefined byte": (b"a,b\n1,x\n2,\x81\n", "cp1252", r"line 3: byte 10 \(0x81\) is not cp1252"),
    "half a character": (b"a,b\n1,\x8e\n", "shift_jis", r"line 2: byte 6 \(0x8e\) is not shift_jis"),
    "half a unit": ("a,b\n1,x\n".encode("utf-16-le") + b"\n", "utf-16-le", r"byte 16 \(0x0a\) is not utf-16"),
    "lone surrogate": ("a\n".encode("utf-16-le") + b"\x00\xd8\n\0", "utf-16-le", r"line 2: byte 4"),
    "no mark": ("a,b\n1,2\n".encode("utf-16-le"), "utf-16", r"byte order mark.*source.encoding: utf-16-le"),
    "late value": ("a,é\n1,2\n3,é\n".encode("latin-1"), "latin-1", r"line 3: column 'é': 'é' is not int64"),
    "stray quote": ('a,b\n1,2\n3,é"\n'.encode("utf-16"), "utf-16", r"line 3: the quote character at byte 24"),
    "ascii": ("a\né\n".encode(), "ascii", r"line 2: byte 2 \(0xc3\) is not ascii"),
    "unknown": (b"a\n1\n", "latin1x", r"source.encoding: 'latin1x': there is no such encoding"),
    "stateful": (b"a\n1\n", "iso2022_jp", r"source.encoding: 'iso2022_jp': rows cannot be found in it"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_bytes_are_named(tmp_path: Path, case: str) -> None:
    data, encoding, error = BAD[case]
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(ConnectorError, match=error):
        _read(tmp_path / "a.csv", 4, encoding)


@pytest.mark.parametrize(
    "name",
    ["utf_7", "utf_32", "hz", "idna", "unicode_escape", "rot13", "cp037", "undefined"],
)
def test_encodings_whose_rows_cannot_be_found_are_refused(name: str) -> None:
    with pytest.raises(UnknownEncodingError, match="Readable are utf-8"):
        find_encoding(name)


def test_other_formats_take_no_encoding(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match=r"source\.encoding: files of the format arrow"):
        open_source(str(tmp_path / "a.arrow"), "arrow", encoding="latin-1")
    open_source(str(tmp_path / "a.arrow"), "arrow", encoding="UTF8")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("a\nKöln\n".encode(), "utf-8"),
        ("a\nKöln\n".encode("utf-16"), "utf-16"),
        ("a\nKoln\n".encode("utf-16-le"), "utf-16-le"),
        ("a\nKoln\n".encode("utf-16-be"), "utf-16-be"),
        (b"a\n" * 5000 + "Köln €\n".encode("cp1252"), "cp1252"),
        (b"a\nK\xf6ln \x81\n", "latin-1"),
        (b"a\nK\xc3", "cp1252"),
    ],
)
def test_encodings_are_guessed(tmp_path: Path, data: bytes, expected: str) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    found, why = guess_encoding(SourceSpec(str(tmp_path / "a.csv")), Csv)
    assert found == expected
    assert (not why) == (expected == "utf-8")
    assert "Köln" in why or expected != "cp1252" or len(data) < 20


UTF8_TEXT = "id,name\n1,abc\n2,André Köln\n".encode()
LATIN = "id,name\n1,Café\n2,abc\n".encode("latin-1")
MIXED = {
    "two files": ([UTF8_TEXT, LATIN], "0.csv, line 3 ('é'), is UTF-8, DIR/1.csv, line 2, byte 13 is not"),
    "the other order": ([LATIN, UTF8_TEXT], "1.csv, line 3 ('é'), is UTF-8, DIR/0.csv, line 2"),
    "one file": ([UTF8_TEXT + LATIN[8:]], "0.csv, line 3 ('é'), is UTF-8, DIR/0.csv, line 4"),
    "one line": (["id,name,x\n1,é,".encode() + b"K\xf6ln\n"], "line 2 ('é'), is UTF-8, DIR/0.csv, line 2"),
    "quotes": (["id,name\n1,a “b’s\n".encode() + LATIN[8:]], "line 2 ('“'), is UTF-8"),
    "Cyrillic": (["id,name\n1,Москва\n".encode() + LATIN[8:]], "line 2 ('Москва'), is UTF-8"),
}


@pytest.mark.parametrize("case", MIXED)
@pytest.mark.parametrize("block", [16, 2**20])
def test_mixed_encodings_are_refused_with_both_places(
    case: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, text = MIXED[case]
    monkeypatch.setattr("connectors.encoding_guess.BLOCK_BYTES", block)
    for part, data in enumerate(files):
        (tmp_path / f"{part}.csv").write_bytes(data)
    with pytest.raises(ConnectorError) as error:
        guess_encoding(SourceSpec(str(tmp_path)), Csv)
    assert text.replace("DIR", str(tmp_path)) in str(error.value)
    source = open_source(str(tmp_path), encoding="cp1252")  # some UTF-8 holds bytes that cp1252 lacks
    with pytest.raises(
        ConnectorError, match=r"is written in UTF-8, but source.encoding is|0x..\) is not cp1252"
    ):
        source.list()


@pytest.mark.parametrize("text", ["“CAFÉ”", "HYVÄ” – Ã…", "À «été»", "30 °C à 5 €", "Šíř É’S é…”x", "ÀÉÎÕÜ"])
def test_texts_of_one_byte_a_character_are_not_taken_for_utf8(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(f"id,name\n1,{text}\n".encode("cp1252", "replace"))
    assert guess_encoding(SourceSpec(str(tmp_path / "a.csv")), Csv)[0] == "cp1252"
    source = open_source(str(tmp_path / "a.csv"), encoding="cp1252")
    listing = source.list()
    (shard,) = listing.shards
    expected = text.encode("cp1252", "replace").decode("cp1252")
    assert source.read(shard, ["name"], listing.schema)["name"].to_pylist() == [expected]
