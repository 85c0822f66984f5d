"""Filters, renamed columns and Hive partitions: which rows come back, and what is read for them."""

from __future__ import annotations

import datetime
import io
import math
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors import open_source, parquet_source
from connectors.base import ConnectorError, Source
from connectors.files import identity
from connectors.filters import Predicate, parse
from connectors.parquet_source import ParquetSource
from engine import Recipe
from engine.plan.planner import make_plan

ROWS = [
    {
        "n": n,
        "x": None if n % 7 == 0 else n / 4,
        "s": "abc"[n % 3],
        "b": n % 2 == 0,
        "meta": {"lang": "de" if n < 9 else None},
    }
    for n in range(40)
]


def rows_of(source: Source, columns: list[str] | None = None) -> list[dict[str, Any]]:
    listing = source.list()
    tables = [source.read(shard, columns or listing.schema.names, listing.schema) for shard in listing.shards]
    assert [table.num_rows for table in tables] == [shard.n_rows for shard in listing.shards]
    return [row for table in tables for row in table.to_pylist()]


def holds(clause: tuple[str, str, Any], row: dict[str, Any]) -> bool:
    """SQL's meaning: a comparison with a missing value holds for no row."""
    name, operation, value = clause
    found = row[name]
    if value is None:
        return (found is None) == (operation == "=")
    if found is None:
        return False
    tests = {
        "=": lambda: found == value,
        "!=": lambda: found != value,
        "<": lambda: found < value,
        "<=": lambda: found <= value,
        ">": lambda: found > value,
        ">=": lambda: found >= value,
        "in": lambda: found in value,
        "not in": lambda: found not in value,
    }
    return tests[operation]()


NUMBERS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
CLAUSE = st.one_of(
    st.tuples(st.sampled_from(["n", "x"]), NUMBERS, st.integers(-1, 41) | st.sampled_from([1.25, 2.5])),
    st.tuples(
        st.sampled_from(["n", "x"]),
        st.sampled_from(["in", "not in"]),
        st.lists(st.integers(0, 9), max_size=3),
    ),
    st.tuples(st.just("s"), NUMBERS, st.sampled_from(["a", "b", "zz"])),
    st.tuples(st.sampled_from(["x", "s"]), st.sampled_from(["=", "!="]), st.none()),
    st.tuples(st.just("b"), st.sampled_from(["=", "!="]), st.booleans()),
)
FILTER = st.lists(st.lists(CLAUSE, min_size=1, max_size=3), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("filters")
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, folder / "a.parquet", row_group_size=5)
    parted = folder / "hive"
    for s in "abc":
        (parted / f"s={s}").mkdir(parents=True)
        part = table.filter(pa.compute.equal(table["s"], s)).drop_columns("s")
        pq.write_table(part, parted / f"s={s}/x.parquet", row_group_size=4)
    return {"plain": folder / "a.parquet", "hive": parted}


@given(value=FILTER, shard_bytes=st.sampled_from([1, 10**6]), kind=st.sampled_from(["plain", "hive"]))
def test_any_filter_takes_the_rows_that_sql_takes(
    data: dict[str, Path], value: list[list[tuple[str, str, Any]]], shard_bytes: int, kind: str
) -> None:
    wanted = [row for row in ROWS if any(all(holds(clause, row) for clause in way) for way in value)]
    source = open_source(str(data[kind]), filter=parse(value), shard_bytes=shard_bytes)
    if not wanted:
        with pytest.raises(ConnectorError, match=r"source\.filter leaves no row"):
            source.list()
        return
    found = sorted(rows_of(source, [*ROWS[0]]), key=lambda row: row["n"])
    assert found == wanted


def test_what_the_filter_rules_out_is_not_read(
    data: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, int]] = []
    opened: list[str] = []
    whole, footer = ParquetSource._read, ParquetSource._opened

    def spy(self: ParquetSource, file: Any, shard: Any, columns: Any) -> pa.Table:
        read.extend((Path(shard.path).parent.name, group) for group in range(shard.start, shard.stop))
        return whole(self, file, shard, columns)

    def look(self: ParquetSource, path: str) -> Any:
        opened.append(Path(path).parent.name)
        return footer(self, path)

    monkeypatch.setattr(ParquetSource, "_read", spy)
    monkeypatch.setattr(ParquetSource, "_opened", look)
    source = open_source(str(data["hive"]), filter=parse([["s", "in", ["b", "c"]], ["n", ">", 30]]))
    assert {row["n"] for row in rows_of(source)} == {n for n in range(31, 40) if n % 3}
    assert set(opened) == {"s=b", "s=c"}
    # rows 1, 4, ... 37 of b in groups of four: those above 30 lie in the last two of them; likewise for c
    assert set(read) == {("s=b", 2), ("s=b", 3), ("s=c", 2), ("s=c", 3)}


class CountingFile(io.FileIO):
    bytes_read = 0

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size) or b""
        CountingFile.bytes_read += len(found)
        return found


class CountingFiles:
    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(CountingFile(path), mode="r")


def test_only_the_bytes_of_the_named_columns_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"n": range(1000), "blob": [n.to_bytes(2, "big") * 500 for n in range(1000)]})
    pq.write_table(table, tmp_path / "a.parquet", compression="none", use_dictionary=False)
    source = open_source(str(tmp_path / "a.parquet"))
    listing = source.list()
    monkeypatch.setattr(parquet_source, "resolve", lambda path, root="", policy=None: (CountingFiles(), path))
    monkeypatch.setattr(CountingFile, "bytes_read", 0)
    source.read(listing.shards[0], ["n"], listing.schema)
    assert 8_000 < CountingFile.bytes_read < 200_000
    source.read(listing.shards[0], ["n", "blob"], listing.schema)
    assert CountingFile.bytes_read > 1_000_000


def test_partition_columns_have_types_and_odd_values(tmp_path: Path) -> None:
    folders = {"year=2023/c=a%20b": 1, "year=2024/c=__HIVE_DEFAULT_PARTITION__": 2, "year=2024/c=\u00e9": 3}
    for folder, n in folders.items():
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"n": [n]}), tmp_path / folder / "x.parquet")
    source = open_source(str(tmp_path))
    assert source.list().schema == pa.schema([("n", pa.int64()), ("year", pa.int64()), ("c", pa.string())])
    expected = [(1, 2023, "a b"), (2, 2024, None), (3, 2024, "\u00e9")]
    assert [(row["n"], row["year"], row["c"]) for row in rows_of(source)] == expected
    as_uri = open_source(f"file://{tmp_path}/year=2024")
    assert {row["c"] for row in rows_of(as_uri)} == {None, "\u00e9"}
    as_text = open_source(str(tmp_path), text_columns=("year",))
    assert rows_of(as_text, ["year"])[0] == {"year": "2023"}
    renamed = open_source(str(tmp_path), text_columns=("y",), rename={"year": "y"})
    assert rows_of(renamed, ["y"])[0] == {"y": "2023"}
    with pytest.raises(ConnectorError, match=r"text_columns: .* has no column 'yaer'\. Did you mean 'year'"):
        open_source(str(tmp_path), text_columns=("yaer",)).list()
    with pytest.raises(ConnectorError, match=r"'n' is int64; only the types of folders.* Take 'n' out"):
        open_source(str(tmp_path), text_columns=("n",)).list()
    plain = open_source(str(tmp_path), options={"hive": False})
    assert plain.list().schema.names == ["n"]


@pytest.mark.parametrize(("name", "value"), [("-5", -5), ("007", 7), ("+5", "+5"), ("\u0663", "\u0663")])
def test_names_of_folders_are_numbers_where_arrow_reads_them_so(
    name: str, value: object, tmp_path: Path
) -> None:
    """A plus sign, or digits of another script, ended every command with a bare ArrowInvalid."""
    (tmp_path / f"k={name}").mkdir()
    pq.write_table(pa.table({"n": [1]}), tmp_path / f"k={name}/x.parquet")
    assert rows_of(open_source(str(tmp_path))) == [{"n": 1, "k": value}]


def test_text_columns_of_stated_types_are_refused(tmp_path: Path) -> None:
    """Fields of structs were unknown columns, and other columns were passed over without a word."""
    pq.write_table(pa.table({"a": [{"b": 1}], "c": ["x"]}), tmp_path / "x.parquet")
    assert open_source(str(tmp_path), text_columns=("c",)).list().schema.field("c").type == pa.string()
    with pytest.raises(ConnectorError, match=r"'a.b' is a field of the struct 'a' \(source.flatten\)"):
        open_source(str(tmp_path), text_columns=("a.b",), flatten=("a",))
    with pytest.raises(ConnectorError, match=r"column 'a' is struct<b: int64>; .* Take 'a\.b' out"):
        open_source(str(tmp_path), text_columns=("q",), rename={"a.b": "q"}).list()
    (tmp_path / "x.jsonl").write_text('{"c": 1}\n')
    with pytest.raises(ConnectorError, match=r"text_columns: 'c': sources of the format jsonl state"):
        open_source(str(tmp_path / "x.jsonl"), text_columns=("c",))


def test_the_identity_of_a_file_covers_its_partition_columns(tmp_path: Path) -> None:
    """A file in a renamed folder was taken for the old one, with the old value of the column."""
    folder = tmp_path / "region=south"
    folder.mkdir()
    pq.write_table(pa.table({"n": [1]}), folder / "x.parquet")
    plain = open_source(str(tmp_path), options={"hive": False})
    assert [*plain.list().identities.values()] == [identity(str(folder / "x.parquet"))]
    source = open_source(str(tmp_path))
    (before,) = source.list().identities.values()
    moved = folder.rename(tmp_path / "region=west")
    (after,) = source.list().identities.values()
    assert before != after
    moved.rename(folder)
    assert [*source.list().identities.values()] == [before]
    assert rows_of(source) == [{"n": 1, "region": "south"}]


def test_partitions_that_do_not_fit_are_named(tmp_path: Path) -> None:
    for folder in ("y=1", "z=1"):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"n": [1], "z": [1]}), tmp_path / folder / "x.parquet")
    with pytest.raises(ConnectorError, match=r"z=1.*\['z'\].*\['y'\].*options\.hive: false"):
        open_source(str(tmp_path)).list()
    with pytest.raises(ConnectorError, match=r"column 'z' is in the file and in its folders"):
        open_source(str(tmp_path / "z*/*")).list()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("n > 3", "not a list of clauses"),
        ([["n", ">", 3], 3], "3 is not a clause"),
        ([["n", ">"]], "not a clause"),
        ([[["n", "=>", 3]]], "no operation '=>'. Known: =, =="),
        (["n", ">", [3]], "takes one value"),
        (["n", "in", 3], "takes a list"),
        (["n", "<", None], "null fits only"),
        (["nn", "=", 3], r"no column 'nn'. Did you mean 'n'"),
        (["n", "=", "3"], "column 'n' is int64, and '3' is not such a value"),
        (["s", "=", 3], "column 's' is string, and 3 is not such a value"),
        (["b", "=", 1], "column 'b' is bool"),
        (["n", "=", True], "column 'n' is int64"),
        (["x", "=", 10**400], "column 'x' is double"),
        (["s", "in", ["a", None]], r"null fits only .*\[\[\[s, in, \[\.\.\.\]\]\], \[\[s, \"=\", null\]\]\]"),
    ],
)
def test_a_wrong_filter_is_explained(data: dict[str, Path], value: Any, text: str) -> None:
    with pytest.raises(ConnectorError, match=text):
        open_source(str(data["plain"]), filter=parse(value)).list()


def test_dates_and_dictionaries_are_compared_by_value(tmp_path: Path) -> None:
    days = pa.array(["2024-01-01", "2024-02-01"]).cast(pa.date32())
    table = pa.table({"day": days, "kind": pa.array(["u", "v"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet")
    for clause in (["day", ">", "2024-01-15"], ["kind", "=", "v"], ["kind", "not in", ["u"]]):
        source = open_source(str(tmp_path), filter=parse(clause))
        assert [row["kind"] for row in rows_of(source)] == ["v"]


def test_a_time_of_day_is_not_cut_from_a_date(tmp_path: Path) -> None:
    pq.write_table(pa.table({"day": pa.array([datetime.date(2024, 1, 1)])}), tmp_path / "a.parquet")
    whole = open_source(str(tmp_path), filter=parse(["day", "=", datetime.datetime(2024, 1, 1)]))
    assert len(rows_of(whole)) == 1
    noon = open_source(str(tmp_path), filter=parse(["day", "=", datetime.datetime(2024, 1, 1, 12)]))
    with pytest.raises(ConnectorError, match=r"'day' is date32.*no time of day.*Write the date alone"):
        noon.list()


BOUNDS = [0, 1, -1, 2.5, -0.5, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1]
BOUNDS += [2.0**63, 1e30, -1e30, math.inf, -math.inf, math.nan, 10**400]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint8(), pa.uint64()], ids=str)
@pytest.mark.parametrize("operation", ["=", "!=", "<", "<=", ">", ">="])
def test_whole_numbers_are_compared_exactly_with_any_number(kind: pa.DataType, operation: str) -> None:
    """A filter on hashes, uint64 numbers of which half are beyond int64, ended with an error of Arrow."""
    signed, bits = pa.types.is_signed_integer(kind), kind.bit_width
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    values = [low, low + 1, 1, 5, high // 2 + 3, high, None]
    table = pa.table({"n": pa.array(values, kind)})
    for bound in BOUNDS:
        wanted = [value is not None and holds(("n", operation, bound), {"n": value}) for value in values]
        assert parse(["n", operation, bound]).mask(table).to_pylist() == wanted, bound  # type: ignore[union-attr]


def test_a_filter_of_large_unsigned_numbers_reads_statistics(tmp_path: Path) -> None:
    hashes = pa.table({"h": pa.array([1, 2**63 + 5, 7], pa.uint64())})
    pq.write_table(hashes, tmp_path / "a.parquet", row_group_size=1)
    for clause, wanted in ((["h", ">", 5], [2**63 + 5, 7]), (["h", "!=", 2**63 + 5], [1, 7])):
        source = open_source(str(tmp_path), filter=parse(clause), skip_corrupt=True)
        assert [row["h"] for row in rows_of(source)] == wanted
        assert not source.list().skipped


@pytest.mark.parametrize("kind", [pa.decimal128(5, 2), pa.decimal128(20, 2), pa.decimal128(38, 36)], ids=str)
@pytest.mark.parametrize("clause", [["p", ">=", 2], ["p", "in", [2, 3]], ["p", ">", 1.5], ["p", "!=", 1]])
def test_decimals_are_compared_with_whole_numbers(
    kind: pa.DataType, clause: list[Any], tmp_path: Path
) -> None:
    """[price, ">=", 10] took an intact file for one that was cut off."""
    prices = pa.table({"p": pa.array([1, 2, 3]).cast(pa.decimal128(38, 0)).cast(kind)})
    pq.write_table(prices, tmp_path / "a.parquet", row_group_size=1)
    source = open_source(str(tmp_path), filter=parse(clause), skip_corrupt=True)
    assert [int(row["p"]) for row in rows_of(source)] == [2, 3]


@pytest.mark.parametrize(
    ("column", "clause"),
    [
        (pa.array([1.0, 20_000_002.0], pa.float32()), ["x", ">=", 20_000_000]),
        (pa.array([1, 2**60]), ["x", ">=", 1.5]),
        (pa.array([1, 2.0**60]), ["x", ">=", 2**53 + 1]),
        (pa.array([1, 2], pa.float32()).cast(pa.float16()), ["x", ">", 1.5]),
    ],
)
def test_numbers_are_compared_with_numbers_of_another_type(
    column: pa.Array, clause: list[Any], tmp_path: Path
) -> None:
    pq.write_table(pa.table({"x": column, "n": [0, 1]}), tmp_path / "a.parquet", row_group_size=1)
    source = open_source(str(tmp_path), filter=parse(clause), skip_corrupt=True)
    assert rows_of(source, ["n"]) == [{"n": 1}]


def test_statistics_that_cannot_be_compared_are_not_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "a.parquet")
    unlike = pc.field("n") > pa.scalar("a")
    monkeypatch.setattr(Predicate, "expression", lambda self, schema: unlike)
    source = open_source(str(tmp_path), filter=parse(["n", ">", 1]), skip_corrupt=True)
    assert [row["n"] for row in rows_of(source)] == [2]


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("clause", [["x", "!=", 5], ["x", "not in", [5, 6]]])
def test_statistics_rule_out_no_nan(clause: list[Any], statistics: bool, tmp_path: Path) -> None:
    """NaN differs from every number, and Parquet's statistics leave it out."""
    table = pa.table({"x": [5.0, math.nan, 5.0, 5.0], "n": [0, 1, 2, 3]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3, write_statistics=statistics)
    assert rows_of(open_source(str(tmp_path), filter=parse(clause)), ["n"]) == [{"n": 1}]


def test_null_among_values_to_leave_out_changes_nothing(data: dict[str, Path]) -> None:
    for name, values in (("s", ["a", None]), ("n", [*range(30), None])):
        found = rows_of(open_source(str(data["plain"]), filter=parse([name, "not in", values])), [*ROWS[0]])
        assert found == [row for row in ROWS if row[name] not in values]


def test_rows_are_named_by_their_place_in_the_file(tmp_path: Path) -> None:
    text = "n,s\n" + "".join(f"{n},r{n}\n" for n in range(10))
    (tmp_path / "a.csv").write_text(text)
    source = open_source(str(tmp_path / "a.csv"), shard_bytes=20, filter=parse(["n", "in", [2, 3, 8]]))
    source = pickle.loads(pickle.dumps(source))
    shards = source.list().shards
    places = [source.locate(shard, row) for shard in shards for row in range(shard.n_rows)]
    assert places == ["line 4", "line 5", "line 10"]
    assert [*source.file_rows(shards[0], [0, 1]), *source.file_rows(shards[1], [0])] == [2, 3, 8]


def test_columns_and_fields_of_structs_are_renamed(data: dict[str, Path]) -> None:
    rename = {"n": "x", "x": "n", "meta.lang": "lang", "meta": "metadata"}
    source = open_source(
        str(data["plain"]), rename=rename, filter=parse([["lang", "=", "de"], ["x", ">", 3]])
    )
    assert source.list().schema.names == ["x", "n", "s", "b", "metadata", "lang"]
    found = rows_of(source, ["lang", "x", "n"])
    assert found == [{"lang": "de", "x": row["n"], "n": row["x"]} for row in ROWS if 3 < row["n"] < 9]
    for wrong, text in (({"nn": "y"}, r"no column 'nn'.*'n'"), ({"n": "s"}, "'s' is there more than once")):
        with pytest.raises(ConnectorError, match=text):
            open_source(str(data["plain"]), rename=wrong).list()


def recipe(data: dict[str, Path], tmp_path: Path, **source: Any) -> Recipe:
    value = {"path": str(data["plain"]), "label": "s", **source}
    return Recipe.parse({"name": "r", "source": value, "output": {"path": str(tmp_path / "out")}})


def test_the_plan_freezes_the_filter(data: dict[str, Path], tmp_path: Path) -> None:
    plain = make_plan(recipe(data, tmp_path))
    versions = {plain.version}
    for source in (
        {"filter": ["n", "<", 10]},
        {"filter": ["n", ">=", 30]},
        {"rename": {"x": "y"}},
        {"columns": ["n"]},
        {"options": {"hive": False}},
    ):
        plan = make_plan(recipe(data, tmp_path, **source))
        assert plan.n_rows == (10 if "filter" in source else 40)
        assert plan.shards[0].first_row == 0
        versions.add(plan.version)
    assert len(versions) == 6


def test_columns_are_published_and_make_features_only_if_named(data: dict[str, Path], tmp_path: Path) -> None:
    plan = make_plan(recipe(data, tmp_path, columns=["n", "meta"]))
    assert plan.features == ("n",)
    assert plan.published_schema.names[:4] == ["n", "s", "meta", "row_id"]
    named = make_plan(recipe(data, tmp_path, columns=["meta"], features=["x"]))
    assert named.published_schema.names[:4] == ["x", "s", "meta", "row_id"]


@pytest.mark.parametrize("kind", ["any", "all", "in"])
def test_a_filter_of_many_clauses_is_read(kind: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "x.parquet")
    clauses = [["n", "!=", value] for value in range(3, 2_000)]
    given = {"any": [[clause] for clause in clauses], "all": clauses, "in": ["n", "in", [*range(2, 2_000)]]}
    source = open_source(str(tmp_path / "x.parquet"), filter=parse(given[kind]))
    found = [row["n"] for row in rows_of(source)]
    assert found == {"any": [1, 2, 3], "all": [1, 2], "in": [2, 3]}[kind]


@pytest.mark.parametrize("given", [[["n", "=", 1]] * 2_001, ["n", "in", [*range(2_001)]]])
def test_a_filter_compares_a_bounded_number_of_values(given: Any) -> None:
    """A recipe with 10,000 clauses ended the process that validated it by SIGSEGV."""
    with pytest.raises(ConnectorError, match=r"source\.filter: it compares 2,001 values, and 2,000 are"):
        parse(given)
