"""Cells that are written in many ways: spaces, words for missing, decimal commas, thousands, no header."""

from __future__ import annotations

import pickle
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from connectors import open_source
from connectors.base import ConnectorError
from connectors.errors import OddValue
from connectors.filters import parse
from tests.unit.connectors.test_connectors_text import RELAXED, as_csv_field, read_all, write


def table(path: Path | str, **settings: Any) -> pa.Table:
    return read_all(open_source(str(path), **settings))


def types(found: pa.Table) -> list[str]:
    return [str(kind) for kind in found.schema.types]


CSV = " a ,b,c,d,e\n 1 , true ,x, 2020-01-01 ,?\n ?,NA, y ,,2\n3,false,NA,2021-12-31,\n"


def test_spaces_and_missing_words_do_not_make_numbers_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", CSV)
    for shard_bytes in (40, 1000):
        found = table(path, strip=True, missing=("?", "NA"), shard_bytes=shard_bytes)
        assert types(found) == ["int64", "bool", "string", "date32[day]", "int64"]
        assert found["a"].to_pylist() == [1, None, 3]
        assert found["b"].to_pylist() == [True, None, False]
        assert found["c"].to_pylist() == ["x", "y", None]


def test_without_them_texts_stay_as_they_are(tmp_path: Path) -> None:
    found = table(write(tmp_path / "a.csv", "b,c\nNA, x\n?,NA\n"))
    assert found.to_pydict() == {"b": ["NA", "?"], "c": [" x", "NA"]}


def test_a_number_column_with_a_foreign_word_offers_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "age\n" + "31\n" * 9 + "?\n")
    with pytest.raises(ConnectorError, match=r"line 11.*'\?' is not a number.*source\.missing: \['\?'\]"):
        open_source(path).list()
    assert types(table(path, missing=("?",))) == ["int64"]
    write(tmp_path / "a.csv", "age\n" + "31\n" * 9 + "?\n")
    with pytest.raises(
        ConnectorError, match=r"line 11: column 'age': '\?' is not int64.*source\.missing"
    ) as caught:
        read_all(open_source(path, shard_bytes=6))
    assert "source.filter: [['age', '!=', null]] its rows are left out" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "shard_bytes", "odd"),
    [
        ("a.csv", "a'ge\n" + "31\n" * 9 + "?'?\n", 1000, OddValue("a'ge", "?'?", "number")),
        ("a.csv", "age\n" + "31\n" * 9 + "?\n", 6, OddValue("age", "?", "int64")),
        ("a.jsonl", '{"age": 1}\n' * 9 + '{"age": "?"}\n', 20, OddValue("age", "?", "int64")),
        ("a.jsonl", '{"age": 1}\n' * 9 + '{"age": [2]}\n', 20, OddValue("age", [2], "int64")),
        ("a.csv", "age,x\n1,2\n1\n", 1000, None),
        ("a.jsonl", '{"age": 1}\n[1]\n', 20, None),
    ],
)
def test_an_error_carries_the_value_that_it_names(
    name: str, text: str, shard_bytes: int, odd: OddValue | None, tmp_path: Path
) -> None:
    """Also after it came from a worker."""
    with pytest.raises(ConnectorError) as caught:
        read_all(open_source(write(tmp_path / name, text), shard_bytes=shard_bytes))
    assert caught.value.odd_value == odd
    assert pickle.loads(pickle.dumps(caught.value)).odd_value == odd


@pytest.mark.parametrize("strip", [False, True])
def test_decimal_commas_and_thousands(tmp_path: Path, strip: bool) -> None:
    text = 'n;x;code\n1.234.567;"1.234,5";1.2\n12;,25;A\n-1.000;-3,5e2;1.234\n'
    options = {"delimiter": ";", "decimal": ",", "thousands": "."}
    path = write(tmp_path / "a.csv", text)
    for shard_bytes in (30, 1000):
        found = table(path, options=options, strip=strip, shard_bytes=shard_bytes)
        assert types(found)[:2] == ["int64", "double"]
        assert found["n"].to_pylist() == [1234567, 12, -1000]
        assert found["x"].to_pylist() == [1234.5, 0.25, -350.0]
    assert found["code"].to_pylist() == ["1.2", "A", "1.234"]  # a text column is not touched


def test_the_wrong_row_is_found_in_rewritten_cells(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "n,t\n 1 ,a\n2,b\n oops ,c\n")
    with pytest.raises(ConnectorError, match="line 4: column 'n': 'oops' is not int64"):
        table(path, strip=True, shard_bytes=7)
    with pytest.raises(ConnectorError, match="line 3: 1 field,"):
        table(write(tmp_path / "b.csv", "n,t\n 1,a\n2\n"), strip=True)


def test_marks_must_differ(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "x\n1\n")
    with pytest.raises(ValidationError, match="same character"):
        open_source(path, options={"decimal": ",", "thousands": ","})


cell = st.text(st.sampled_from('ab1 ,"\n?\té'), max_size=5)


@RELAXED
@given(rows=st.lists(st.tuples(cell, cell), min_size=1, max_size=9), shard_bytes=st.integers(1, 60))
def test_stripping_any_csv_equals_stripping_its_values(
    tmp_path: Path, rows: list[tuple[str, str]], shard_bytes: int
) -> None:
    text = "a,b\n" + "".join(f"{as_csv_field(a, True)},{as_csv_field(b, True)}\n" for a, b in rows)
    path = write(tmp_path / "any.csv", text)
    found = table(path, strip=True, missing=("?",), text_columns=("a", "b"), shard_bytes=shard_bytes)

    def clean(value: str) -> str | None:
        return None if value.strip() in ("", "?") else value.strip()

    assert found.to_pydict() == {"a": [clean(a) for a, _ in rows], "b": [clean(b) for _, b in rows]}


def test_json_numbers_with_words_for_missing(tmp_path: Path) -> None:
    rows = '{"a": 1, "b": "say: \\"?\\", x", "c": {"d": "?"}}\n{"a": "?", "b": "? ", "c": {"d": 2}}\n'
    path = write(tmp_path / "a.jsonl", rows)
    for shard_bytes in (1, 1000):
        found = table(path, missing=("?",), shard_bytes=shard_bytes)
        assert found["a"].to_pylist() == [1, None]
        assert found["b"].to_pylist() == ['say: "?", x', "? "]
    assert found["c"].to_pylist() == [{"d": None}, {"d": 2}]
    with pytest.raises(ConnectorError, match=r"line 2: column 'a': '\?' is not int64.*source\.missing"):
        table(path)


def test_a_header_may_be_absent(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "\n1,2,2\n3,4,x\n")
    with pytest.raises(ConnectorError, match=r"'2' is there more than once.*source\.options\.header: false"):
        open_source(path).list()
    found = table(path, options={"header": False})
    assert found.to_pydict() == {"column_1": [1, 3], "column_2": [2, 4], "column_3": ["2", "x"]}
    source = open_source(path, options={"header": False}, shard_bytes=6)
    assert [source.locate(shard, 0) for shard in source.list().shards] == ["line 2", "line 3"]
    named = table(path, options={"header": False, "column_names": ["a", "b", "c"]})
    assert named.column_names == ["a", "b", "c"]
    assert named.num_rows == 2
    assert table(path, options={"column_names": ["a", "b", "c"]}).num_rows == 1  # in place of the header's
    with pytest.raises(ConnectorError, match="column_names has 2 names, and line 1 has 3 cells"):
        table(path, options={"column_names": ["a", "b"]})


def test_columns_of_one_name_are_renamed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "score,n,score,n\n1,2,3,4\n")
    with pytest.raises(ConnectorError) as caught:
        open_source(path).list()
    assert "'score' is there more than once (columns 1, 3), as is 'n'" in str(caught.value)
    assert "source.rename: {score.1: NAME, n.1: NAME}" in str(caught.value)
    found = table(path, rename={"score.1": "second", "n.1": "m"})
    assert found.to_pydict() == {"score": [1], "n": [2], "second": [3], "m": [4]}
    with pytest.raises(ConnectorError, match="more than once"):
        table(path, rename={"score.1": "second"})


def nested(path: Path) -> Path:
    person = pa.array(
        [{"age": 3, "job": {"name": " cook"}}, None, {"age": 5, "job": None}],
        pa.struct([("age", pa.int8()), ("job", pa.struct([("name", pa.string())]))]),
    )
    pq.write_table(pa.table({"person": person, "y": [1, 2, 3]}), path, row_group_size=2)
    return path


def test_structs_become_columns(tmp_path: Path) -> None:
    path = nested(tmp_path / "a.parquet")
    source = open_source(str(path), flatten=("person",), strip=True, shard_bytes=1)
    listing = source.list()
    assert [(f.name, str(f.type)) for f in listing.schema] == [
        ("person.age", "int8"),
        ("person.job.name", "string"),
        ("y", "int64"),
    ]
    assert len(listing.shards) == 2
    found = read_all(source)
    assert found["person.age"].to_pylist() == [3, None, 5]
    assert read_all(source, ["y", "person.job.name"])["person.job.name"].to_pylist() == ["cook", None, None]
    taken = open_source(
        str(path), flatten=("who",), rename={"person": "who"}, filter=parse(["who.age", ">", 3])
    )
    assert read_all(taken)["y"].to_pylist() == [3]


def test_names_that_a_field_has_too_are_refused(tmp_path: Path) -> None:
    """A column of the name of a struct's field was read as nothing but nulls, or not found."""
    table = pa.table({"a": [{"b": 1}, {"b": 2}], "a.b": [3, 4], "y": ["u", "v"]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(
        ConnectorError, match=r"rename: .* has a column 'a\.b', and the struct 'a' has a field"
    ):
        open_source(str(tmp_path), rename={"a.b": "c"}).list()
    pq.write_table(table.drop_columns("a.b"), tmp_path / "a.parquet")
    with pytest.raises(ConnectorError, match=r"flatten: .*column 'a\.c' is named as a field of 'a' would be"):
        open_source(str(tmp_path), rename={"y": "a.c"}, flatten=("a",)).list()
    assert open_source(str(tmp_path), rename={"a.b": "c"}).list().schema.names == ["a", "y", "c"]


@pytest.mark.parametrize(
    ("flatten", "said"),
    [
        ("persn", r"no column 'persn'\. Did you mean 'person'"),
        ("y", "column 'y' .* int64, which has no fields"),
    ],
)
def test_what_cannot_be_flattened_is_named(tmp_path: Path, flatten: str, said: str) -> None:
    with pytest.raises(ConnectorError, match=said):
        open_source(str(nested(tmp_path / "a.parquet")), flatten=(flatten,)).list()


def test_a_filter_on_cleaned_texts_reads_all_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": [" b", " b", "c", "a "], "n": [1, 2, 3, 4]}), path, row_group_size=1)
    settings: dict[str, Any] = {"strip": True, "shard_bytes": 1}
    assert table(path, filter=parse(["t", "in", ["a", "b"]]), **settings)["n"].to_pylist() == [1, 2, 4]
    source = open_source(str(path), filter=parse([["t", "=", "b"], ["n", ">", 1]]), **settings)
    assert [shard.path for shard in source.list().shards] == [str(path)]
    mapped = {"label": "n", "label_map": {1: 9}}
    assert table(path, filter=parse(["n", "=", 9]), **mapped)["t"].to_pylist() == [" b"]


def test_labels_of_every_type_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    coded = pa.array(["x", "y", None]).dictionary_encode()
    pq.write_table(
        pa.table({"n": pa.array([1, 2, 7], pa.int16()), "b": [True, False, None], "t": coded}), path
    )
    cases: list[tuple[str, Any, list[Any]]] = [
        ("n", {1: "good", 2: "bad"}, ["good", "bad", "7"]),
        ("n", {1: 0, 7: None}, [0, 2, None]),
        ("n", {"1": "one"}, ["one", "2", "7"]),
        ("b", {True: 1, False: 0}, ["1", "0", None]),
        ("b", {False: True}, [True, True, None]),
        ("t", {"x": "z"}, ["z", "y", None]),
    ]
    for name, label_map, wanted in cases:
        assert table(path, label=name, label_map=label_map)[name].to_pylist() == wanted
    with pytest.raises(ConnectorError, match=r"source\.label: .* no column 'tt'"):
        table(path, label="tt", label_map={"x": "z"})


def test_text_that_is_no_utf8_is_named_in_parquet(tmp_path: Path) -> None:
    raw = pa.array([b"ok", None, "caf\xe9".encode("latin1")], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    pq.write_table(pa.table({"t": broken}), tmp_path / "a.parquet")
    with pytest.raises(ConnectorError, match=r"a\.parquet, row 2, column 't': byte 3 .*0xe9.* is not UTF-8"):
        table(tmp_path / "a.parquet")


def test_dates_beyond_2262_do_not_wrap(tmp_path: Path) -> None:
    days = [datetime(1600, 1, 1), datetime(2500, 12, 31), None]
    times = pa.array(days, pa.timestamp("us"))
    pq.write_table(pa.table({"d": times}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert table(tmp_path / "a.parquet")["d"].to_pylist() == days


def test_names_by_place_need_headers_in_one_order(tmp_path: Path) -> None:
    """Columns of a file with another order were swapped without a word."""
    write(tmp_path / "1.csv", "a,b\n1,x\n")
    write(tmp_path / "2.csv", "alpha,beta\n2,y\n")
    options = {"column_names": ["n", "t"]}
    assert table(tmp_path, options=options).to_pylist() == [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}]
    write(tmp_path / "2.csv", "b,a\ny,2\n")
    with pytest.raises(ConnectorError, match=r"2\.csv, line 1: the columns stand in another order.*rename"):
        table(tmp_path, options=options)
