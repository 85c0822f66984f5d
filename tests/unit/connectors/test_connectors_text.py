"""CSV and JSON lines: what is read back, for any content and shard size."""

from __future__ import annotations

import gzip
import json
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors import open_source
from connectors.base import ConnectorError, CorruptError, LateColumns, Source

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BOM = "\ufeff"
value = st.text(st.sampled_from('ab1 ,"\n\ré😀\t'), max_size=5)
line_end = st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\n\r\n"])


def write(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def read_all(source: Source, columns: list[str] | None = None) -> pa.Table:
    listing = source.list()
    names = columns or listing.schema.names
    found = [source.read(shard, names, listing.schema) for shard in listing.shards]
    return pa.concat_tables(found)


def as_csv_field(text: str, quote: bool) -> str:
    if quote or any(char in text for char in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


@RELAXED
@given(
    rows=st.lists(st.tuples(value, value, st.booleans(), line_end), min_size=1, max_size=12),
    bom=st.booleans(),
    last_end=st.booleans(),
    shard_bytes=st.integers(1, 80),
)
def test_any_csv_comes_back(
    tmp_path: Path, rows: list[tuple[str, str, bool, str]], bom: bool, last_end: bool, shard_bytes: int
) -> None:
    lines = [as_csv_field(a, quote) + "," + as_csv_field(b, quote) + end for a, b, quote, end in rows]
    text = (BOM if bom else "") + "\na,b\n" + "".join(lines)
    path = write(tmp_path / "any.csv", text if last_end else text.rstrip("\r\n"))
    source = open_source(path, shard_bytes=shard_bytes, text_columns=("a", "b"))
    expected = {"a": [a or None for a, *_ in rows], "b": [b or None for _, b, *_ in rows]}
    assert read_all(source).to_pydict() == expected


@RELAXED
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {"n": st.integers(-5, 5), "v": st.lists(st.floats(-1, 1, width=32), max_size=2), "s": value}
        ),
        min_size=1,
        max_size=12,
    ),
    ends=st.lists(st.sampled_from(["\n", "\r\n", "\n \t\n"]), min_size=12, max_size=12),
    bom=st.booleans(),
    ascii_only=st.booleans(),
    shard_bytes=st.integers(1, 120),
)
def test_any_jsonl_comes_back(
    tmp_path: Path, rows: list[Any], ends: list[str], bom: bool, ascii_only: bool, shard_bytes: int
) -> None:
    first = {"n": 0, "v": [0.5], "s": "first"}
    rows = [first, *rows]
    lines = [
        json.dumps(row, ensure_ascii=ascii_only) + end for row, end in zip(rows, [*ends, ""], strict=False)
    ]
    path = write(tmp_path / "any.jsonl", (BOM if bom else "") + "".join(lines))
    source = open_source(path, shard_bytes=shard_bytes)
    assert read_all(source).to_pylist() == rows


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"{BOM}{BOM}1,a\n2,b\n", None),
        (f"{BOM}{BOM}n,c\n1,a\n2,b\n", ["n", "c"]),
        (f"{BOM}n,c\n{BOM}1,a\n2,b\n", ["n", "c"]),
        (f"n,c\n{BOM}{BOM}1,a\n2,b\n", ["n", "c"]),
    ],
)
def test_marks_before_the_header_or_the_first_row_are_no_text(
    text: str, names: list[str] | None, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text, "utf-8")
    source = open_source(str(tmp_path / "a.csv"), options={} if names else {"header": False})
    table = read_all(source)
    assert table.schema.names == (names or ["column_1", "column_2"])
    assert [column.to_pylist() for column in table.columns] == [[1, 2], ["a", "b"]]


@pytest.mark.parametrize("options", [{}, {"strip": True}, {"encoding": "utf-16-le"}])
@pytest.mark.parametrize("shard_bytes", [1, 9, 16, 10**6])
@pytest.mark.parametrize("row", ["yes,3", "2,3", ",3", "y,x"])
def test_a_mark_where_csv_files_were_joined_is_an_error(
    row: str, shard_bytes: int, options: dict[str, Any], tmp_path: Path
) -> None:
    """It became part of the text: files that were joined had three classes in place of two."""
    path = tmp_path / "joined.csv"
    path.write_text(f"y,x\nno,1\nyes,2\n{BOM}{row}\nno,4\n", options.get("encoding", "utf-8"))
    source = open_source(str(path), shard_bytes=shard_bytes, **options)
    found = (
        rf"joined\.csv, line 4: a byte order mark stands before '{row}' in column 'y', as where .*folder\."
    )
    with pytest.raises(ConnectorError, match=found):
        read_all(source)


def test_a_mark_before_a_quote_is_named(tmp_path: Path) -> None:
    """It was called a quote inside a field without quotes."""
    (tmp_path / "a.csv").write_text(f'n,c\n1,a\n{BOM}"2",b\n', "utf-8")
    with pytest.raises(ConnectorError, match=r"line 3: a byte order mark stands before a quote, as where"):
        read_all(open_source(str(tmp_path / "a.csv")))


@pytest.mark.parametrize("shard_bytes", [1, 10**6])
def test_marks_elsewhere_are_text(shard_bytes: int, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f'y,x\n"{BOM}a",{BOM}b\n"c\n{BOM}d",e\n', "utf-8")
    source = open_source(str(tmp_path / "a.csv"), shard_bytes=shard_bytes)
    assert read_all(source).to_pydict() == {"y": [f"{BOM}a", f"c\n{BOM}d"], "x": [f"{BOM}b", "e"]}


@pytest.mark.parametrize("shard_bytes", [1, 10, 10**6])
def test_a_mark_within_json_lines_is_an_error(shard_bytes: int, tmp_path: Path) -> None:
    path = write(tmp_path / "joined.jsonl", f'{{"a": 1}}\n{BOM}{{"a": 2}}\n')
    with pytest.raises(ConnectorError, match=r"line 2: a byte order mark begins the row.*Remove it\."):
        read_all(open_source(path, shard_bytes=shard_bytes))


def test_types_come_from_the_first_shard_and_hold_in_every_file(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "n,x,flag,none,day\n1,1.5,true,,2020-01-01\n2,2,false,,2020-01-02\n")
    write(tmp_path / "b.csv", "x,n,flag,none,day\n7,3,true,word,2020-01-03\n")
    source = open_source(str(tmp_path))
    schema = source.list().schema
    assert [str(t) for t in schema.types] == ["int64", "double", "bool", "string", "date32[day]"]
    assert read_all(source, ["x", "n", "none"]).to_pydict() == {
        "x": [1.5, 2.0, 7.0],
        "n": [1, 2, 3],
        "none": [None, None, "word"],
    }


def test_jsonl_dates_stay_text_and_missing_keys_are_null(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", '{"d": "2020-01-01", "n": null, "v": [1, 2]}\n{"d": "soon"}\n')
    for shard_bytes in (1, 1000):
        found = read_all(open_source(path, shard_bytes=shard_bytes))
        assert found.to_pydict() == {"d": ["2020-01-01", "soon"], "n": [None, None], "v": [[1, 2], None]}


def test_shards_tell_where_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'x,s\n1,"two\nlines"\r\n\n2,b\n3,c\n')
    source = pickle.loads(pickle.dumps(open_source(path, shard_bytes=8)))
    shards = source.list().shards
    assert [(s.n_rows, s.file_row) for s in shards] == [(1, 0), (1, 1), (1, 2)]
    assert [source.locate(shard, 0) for shard in shards] == ["line 2", "line 5", "line 6"]
    assert read_all(source, ["s"]).num_rows == 3
    assert source.read(shards[0], [], source.list().schema).num_rows == 1


def test_header_only_files_add_no_rows(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "x\n")
    write(tmp_path / "b.csv", "x\n1")
    assert read_all(open_source(str(tmp_path))).to_pydict() == {"x": [1]}


BAD_CSV = {
    "ragged": ("a,b\n1,2\n\n3\n4,5\n", ["line 4", "1 field,", "2 columns"]),
    "ragged long": ("a,b\n1,2\n3,4,5\n", ["line 3", "3 fields", "2 columns"]),
    "word among numbers": (
        "a,b\n" + "1,2\n" * 9 + '"x\ny",3\n',
        ["line 11", "column 'a'", r"'x\ny'", "text_columns"],
    ),
    "latin1": ("a,b\n1,caf\xe9\n".encode("latin1"), ["line 2", "byte 9", "0xe9", "source.encoding: cp1252"]),
    "utf16": ("a,b\n1,2\n".encode("utf-16"), ["line 1", "byte 0", "not UTF-8", "source.encoding: utf-16"]),
    "quote in field": ('a,b\n1,5" pipe\n', ["line 2", "byte 7", "quote"]),
    "quote left open": ('a,b\n1,"2\n3,4\n', ["line 2", "byte 6", "never closed"]),
    "same name twice": ("a,b,a\n1,2,3\n", ["'a'", "columns 1, 3"]),
    "no name": (",a\n0,1\n", ["column 1 has no name", "index=False", "options.empty_names: number"]),
    "blank": ("\n\n", ["no header"]),
    "no bytes": ("", ["0 bytes"]),
    "header only": ("a,b\n", ["no rows"]),
}


@pytest.mark.parametrize("header", [",a,", " ,a, "])
def test_columns_without_a_name_are_numbered_by_their_place(tmp_path: Path, header: str) -> None:
    path = write(tmp_path / "index.csv", f"{header}\n0,5,x\n1,6,y\n")
    source = open_source(path, options={"empty_names": "number"}, strip=header != ",a,")
    assert source.list().schema.names == ["column_1", "a", "column_3"]
    assert read_all(source).column("column_3").to_pylist() == ["x", "y"]


def test_a_numbered_column_does_not_take_the_name_of_another(tmp_path: Path) -> None:
    path = write(tmp_path / "index.csv", ",column_1\n0,5\n")
    with pytest.raises(ConnectorError, match="more than once"):
        read_all(open_source(path, options={"empty_names": "number"}))


@pytest.mark.parametrize("case", BAD_CSV)
def test_bad_csv_is_named(tmp_path: Path, case: str) -> None:
    text, parts = BAD_CSV[case]
    path = write(tmp_path / "bad.csv", text)
    with pytest.raises(ConnectorError) as caught:
        read_all(open_source(path))
    for part in ["bad.csv" if case != "header only" else "", *parts]:
        assert part in str(caught.value)


BAD_JSONL = {
    "cut off": ('{"a": 1}\n\n{"a": \n', ["line 3", "character"]),
    "array": ('[{"a": 1},\n{"a": 2}]\n', ["line 1", "jq"]),
    "two on a line": ('{"a": 1}\n{"a": 2} {"a": 3}\n', ["line 2", "Extra data"]),
    "no object": ('{"a": 1}\n7\n', ["line 2", "7 is not an object"]),
    "word among numbers": ('{"a": 1}\n{"a": 2}\n{"a": "x"}\n', ["line 3", "column 'a'", "'x'", "int64"]),
    "number among words": ('{"a": "x"}\n{"a": 2}\n', ["line 2", "column 'a'", "2 is not string"]),
    "word in a vector": ('{"v": [1.5]}\n{"v": [2, "x"]}\n', ["line 2", "column 'v'", "'x'"]),
    "twice": ('{"a": 1}\n{"a": 1, "a": 2}\n', ["line 2", "twice"]),
    "half a pair": ('{"a": "x"}\n{"a": "\\ud800"}\n', ["line 2", "column 'a'", "\\ud800 is half of a pair"]),
    "half a pair first": ('{"k\\udc00": 1}\n', ["line 1", "\\udc00 is half of a pair of surrogates"]),
    "latin1": ('{"a": 1}\n{"a": "\xe9"}\n'.encode("latin1"), ["line 2", "byte 16", "not UTF-8"]),
    "blank": (" \n\n", ["no rows"]),
}


@pytest.mark.parametrize("shard_bytes", [1, 1000])
@pytest.mark.parametrize("case", BAD_JSONL)
def test_bad_jsonl_is_named(tmp_path: Path, case: str, shard_bytes: int) -> None:
    text, parts = BAD_JSONL[case]
    path = write(tmp_path / "bad.jsonl", text)
    with pytest.raises(ConnectorError) as caught:
        read_all(open_source(path, shard_bytes=shard_bytes))
    for part in ["bad.jsonl", *parts]:
        assert part in str(caught.value)


@given(n=st.integers(1, 60), wrong=st.integers(0, 59), data=st.data())
@RELAXED
def test_the_exact_row_is_found_in_a_later_shard(
    tmp_path: Path, n: int, wrong: int, data: st.DataObject
) -> None:
    wrong %= n
    values = [str(i) for i in range(n)]
    values[wrong] = "oops"
    text = "x\n1\n" + "".join(value + data.draw(st.sampled_from(["\n", "\r\n", "\n\n"])) for value in values)
    path = write(tmp_path / "late.csv", text)
    with pytest.raises(ConnectorError) as caught:
        read_all(open_source(path, shard_bytes=2))
    line = text.replace("\r\n", "\n").split("\n").index("oops") + 1
    assert f"line {line}: column 'x': 'oops' is not int64" in str(caught.value)


def test_files_must_have_the_same_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "age,label\n1,x\n")
    write(tmp_path / "b.csv", "Age,label\n1,x\n")
    with pytest.raises(
        ConnectorError, match=r"b\.csv has no column 'age'.*a\.csv has\. Did you mean 'Age'\?"
    ):
        open_source(str(tmp_path)).list()


def test_missing_columns_name_the_nearest(tmp_path: Path) -> None:
    source = open_source(write(tmp_path / "a.csv", "label,x\na,1\n"))
    listing = source.list()
    with pytest.raises(ConnectorError, match=r"no column 'lable'\. Did you mean 'label'\?"):
        source.read(listing.shards[0], ["lable"], listing.schema)


def test_a_file_that_changes_after_listing_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "x\n11\n22\n")
    source = open_source(path)
    listing = source.list()
    write(tmp_path / "a.csv", "x\n1\n2\n3\n")
    with pytest.raises(ConnectorError, match="changed since it was listed"):
        source.read(listing.shards[0], ["x"], pa.schema([("x", pa.int64())]))


def test_text_shards_have_an_upper_size(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "x\n1\n")
    with pytest.raises(ConnectorError, match=r"source\.shard_bytes is 2147483648"):
        open_source(path, shard_bytes=2**31)


def test_text_columns_go_by_new_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "plz,b\n01234,1\n")
    for name in ("zip", "plz"):
        source = open_source(path, rename={"plz": "zip"}, text_columns=(name,))
        assert read_all(source).to_pylist() == [{"zip": "01234", "b": 1}]


def test_text_columns_must_exist(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "zip,y\n01234,1\n")
    assert read_all(open_source(path, text_columns=("zip",)))["zip"].to_pylist() == ["01234"]
    with pytest.raises(ConnectorError, match=r"text_columns.*'zipp'.*'zip'"):
        open_source(path, text_columns=("zipp",)).list()


def test_columns_of_json_lines_are_those_of_all_heads(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", '{"x": 1, "m": {"p": 1}, "n": null}\n')
    write(tmp_path / "b.jsonl", '{"x": 2, "m": {"q": "s"}, "n": 2.5, "late": true}\n')
    write(tmp_path / "c.jsonl", '{"z": "2020-01-01"}\n')
    source = open_source(str(tmp_path))
    assert source.list().schema == pa.schema(
        [
            ("x", pa.int64()),
            ("m", pa.struct([("p", pa.int64()), ("q", pa.string())])),
            ("n", pa.float64()),
            ("late", pa.bool_()),
            ("z", pa.string()),
        ]
    )
    found = read_all(source).to_pydict()
    assert found["m"] == [{"p": 1, "q": None}, {"p": None, "q": "s"}, None]
    assert (found["n"], found["late"]) == ([None, 2.5, None], [None, True, None])
    assert isinstance(source, LateColumns)
    assert not any(source.unread(shard, source.list().schema) for shard in source.list().shards)


LATE: dict[str, Any] = {"b c": {"d": 2}, "e": 'x ": "y": ', "ü": [{"w": 1}]}


@given(st.lists(st.sampled_from(sorted(LATE))))
def test_what_turns_up_later_is_named(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    rows = [{"a": 1} | {name: LATE[name] for name in names[:n]} for n in range(len(names) + 1)]
    text = "".join(json.dumps(row, ensure_ascii=n % 2 == 0) + "\n" for n, row in enumerate(rows))
    source = open_source(write(tmp_path_factory.mktemp("late") / "a.jsonl", text))
    (shard,) = source.list().shards
    assert isinstance(source, LateColumns)
    assert source.unread(shard, pa.schema([("a", pa.int64())])) == tuple(sorted(set(names)))
    empty = pa.struct([])
    known = pa.schema([("a", pa.int64()), ("b c", empty), ("e", pa.string()), ("ü", pa.list_(empty))])
    inside = {"b c": "b c.d", "ü": "ü.w"}
    assert {*source.unread(shard, known)} == {inside[name] for name in names if name in inside}


def test_another_header_in_a_later_csv_file_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "x,y\n1,2\n")
    write(tmp_path / "b.csv", "x,y,late\n1,2,3\n")
    with pytest.raises(ConnectorError, match=r"b\.csv has a column 'late', which .*a\.csv has not"):
        open_source(str(tmp_path)).list()


DAMAGED = {
    "csv": ["x,y\n1,a\n2,b,c\n", "", "\n\n", 'x,y\n1,"a\n'],
    "jsonl": ['{"x": 1, "y": "a"}\n{"x": 1,\n', "", '{"x": 1, "y": "a"}\n7\n'],
}
WHOLE = {"csv": "x,y\n1,a\n2,b\n", "jsonl": '{"x": 1, "y": "a"}\n{"x": 2, "y": "b"}\n'}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in DAMAGED for text in DAMAGED[kind]])
def test_a_damaged_file_is_left_out_wherever_it_stands(
    kind: str, text: str, place: int, tmp_path: Path
) -> None:
    """The first file decides names and types, so that a damaged one ended the run in spite of `skip`."""
    for index in range(2):
        (tmp_path / f"{index}.{kind}").write_text(text if index == place else WHOLE[kind])
    with pytest.raises(CorruptError):
        read_all(open_source(str(tmp_path)))
    source = open_source(str(tmp_path), skip_corrupt=True)
    listing = source.list()
    assert listing.schema == pa.schema([("x", pa.int64()), ("y", pa.string())])
    tables = []
    for shard in listing.shards:
        with suppress(CorruptError):
            tables.append(source.read(shard, ["x", "y"], listing.schema))
    (table,) = tables
    assert table.to_pylist() == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("[]", "[1, 2]", pa.list_(pa.int64())),
        ('[{"a": null}]', '[{"a": 3}]', pa.list_(pa.struct([("a", pa.int64())]))),
        ('[{"a": 1}]', '[{"a": 1, "b": 2}]', pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())]))),
        ("1", "1.5", pa.float64()),
        ("1.5", "1", pa.float64()),
        ('{"a": [1]}', '{"a": [0.5]}', pa.struct([("a", pa.list_(pa.float64()))])),
        ("[[]]", '[["2024-01-01"]]', pa.list_(pa.list_(pa.string()))),
    ],
)
def test_later_files_complete_the_types_of_json(
    first: str, second: str, kind: pa.DataType, tmp_path: Path
) -> None:
    """A column of empty lists in the first file was text, and numbers in the next one an error."""
    for index, value in enumerate((first, second)):
        (tmp_path / f"{index}.jsonl").write_text(f'{{"t": {value}}}\n')
    source = open_source(str(tmp_path))
    assert source.list().schema == pa.schema([("t", kind)])
    assert len(read_all(source)) == 2
    assert read_all(source)["t"][1].as_py() == json.loads(second)


@pytest.mark.parametrize(
    ("later", "kind"),
    [
        (["3.5"], pa.float64()),
        (["3", "4.5"], pa.float64()),
        (["3", "x"], pa.string()),
        (["x"], pa.string()),
        (["2024-01-01"], pa.date32()),
        ([""], pa.string()),
    ],
)
def test_later_shards_say_what_a_column_without_first_values_is(
    later: list[str], kind: pa.DataType, tmp_path: Path
) -> None:
    """The same rows were numbers in one file, and texts in two of which the first has no value."""
    for index, value in enumerate(["", *later]):
        (tmp_path / f"{index}.csv").write_text(f"x,z\n1,{value}\n")
    source = open_source(str(tmp_path))
    assert source.list().schema.field("z").type == kind
    assert read_all(source)["z"].null_count == 1 + later.count("")
    as_text = open_source(str(tmp_path), text_columns=("z",))
    assert read_all(as_text)["z"].to_pylist() == [value or None for value in ["", *later]]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_text_after_the_beginnings_makes_a_column_without_first_values_text(
    ending: str, tmp_path: Path
) -> None:
    """The beginnings of later files alone gave the type, so that a text further on was an error."""
    numbers = "".join(f"{row},{row}\n" for row in range(20_000))
    for index, rows in enumerate(["0,\n", numbers, "1,none\n2,\n3,4\n"]):
        text = f"x,z\n{rows}".encode()
        write(tmp_path / f"{index}.csv{ending}", gzip.compress(text) if ending else text)
    source = open_source(str(tmp_path), shard_bytes=50_000)
    assert source.list().schema.field("z").type == pa.string()
    assert read_all(source)["z"].to_pylist() == [None, *map(str, range(20_000)), "none", None, "4"]
    rows = [f"{row},{row}\n" for row in range(20_000)]
    rows[15_000] = "15000,?\n"
    text = f"x,z\n{''.join(rows)}".encode()
    write(tmp_path / f"1.csv{ending}", gzip.compress(text) if ending else text)
    with pytest.raises(ConnectorError, match=r"line 15002: column 'z': '\?' is not a number, but over 99%"):
        open_source(str(tmp_path)).list()
    as_text = open_source(str(tmp_path), text_columns=("z",))
    assert read_all(as_text)["z"].null_count == 2
    as_number = open_source(str(tmp_path), missing=("?", "none"))
    assert as_number.list().schema.field("z").type == pa.int64()
    assert read_all(as_number)["z"].null_count == 4


def test_dates_and_times_complete_a_column_as_times(tmp_path: Path) -> None:
    """One file of both is read as times."""
    for index, value in enumerate(["", "2024-01-01", "2024-01-02 03:04:05"]):
        write(tmp_path / f"{index}.csv", f"x,z\n1,{value}\n")
    found = read_all(open_source(str(tmp_path)))["z"]
    assert found.type == pa.timestamp("s")
    assert [str(one) for one in found.to_pylist()[1:]] == ["2024-01-01 00:00:00", "2024-01-02 03:04:05"]


@pytest.mark.parametrize("early", ["1500-01-01", "2500-01-01 00:00:00"])
def test_times_beyond_nanoseconds_beside_fractions_of_seconds_are_texts(early: str, tmp_path: Path) -> None:
    """The column was of nanoseconds, in which reading the other file ended with an error."""
    for index, value in enumerate(["", early, "2024-01-02 03:04:05.5"]):
        write(tmp_path / f"{index}.csv", f"x,z\n1,{value}\n")
    found = read_all(open_source(str(tmp_path)))["z"]
    assert found.to_pylist() == [None, early, "2024-01-02 03:04:05.5"]
    write(tmp_path / "2.csv", f"x,z\n1,{early}\n")
    alone = read_all(open_source(str(tmp_path)))["z"]
    assert alone.type == (pa.timestamp("s") if ":" in early else pa.date32())


def test_files_that_differ_after_their_beginnings_are_no_copies(tmp_path: Path) -> None:
    """The first 64 KiB alone were compared."""
    rows = "x\n" + "1\n" * 40_000
    write(tmp_path / "a.csv", rows + "2\n")
    write(tmp_path / "a.csv.gz", gzip.compress(f"{rows}3\n".encode()))
    assert read_all(open_source(str(tmp_path)))["x"].to_pylist()[40_000::40_001] == [2, 3]
    for same in (f"{rows}2\n", rows, f"{rows}2\n3\n"):  # the packed text may be older, or newer
        write(tmp_path / "a.csv.gz", gzip.compress(same.encode()))
        with pytest.raises(ConnectorError, match=r"a\.csv\.gz is the packed copy of"):
            open_source(str(tmp_path)).list()


def test_a_packed_copy_beside_its_file_is_refused(tmp_path: Path) -> None:
    """Its rows counted twice, without a word."""
    write(tmp_path / "a.csv", "x,y\n1,a\n")
    write(tmp_path / "a.csv.gz", gzip.compress(b"x,y\n1,a\n"))
    with pytest.raises(ConnectorError, match=r"a\.csv\.gz is the packed copy of .*a\.csv, so .* twice"):
        open_source(str(tmp_path)).list()
    write(tmp_path / "a.csv.gz", gzip.compress(b"x,y\n2,b\n"))
    write(tmp_path / "b.csv", "x,y\n")  # two headers alone count no row twice
    write(tmp_path / "b.csv.gz", gzip.compress(b"x,y\n"))
    assert read_all(open_source(str(tmp_path)))["x"].to_pylist() == [1, 2]
