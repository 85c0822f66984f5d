"""Rows of two versions are matched by a key, or by place and content, as a join of all rows would."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.plan.chain import USUAL_ADDER
from engine.recipe.recipe import Recipe
from engine.runs import row_pairs
from engine.runs.diff import compare, diff
from engine.runs.row_changes import write_row_changes
from engine.runs.row_keys import ComparedColumn, check_key_types, common_columns, digests
from engine.runs.row_pairs import RowPairs
from engine.runs.runner import run
from engine.training.data.version import Version
from tests.data import recipe_for

OPERATORS = {"groups": {"method": "none"}, "weights": {}, "split": {}}


def version(
    folder: Path, name: str, source: pa.Table, sizes: Sequence[int] = (), **published: pa.Array
) -> Version:
    """A version of a file with other bytes than any other, in parts of the given sizes; group = row id.

    ``published`` are other values of published columns, or further ones.
    """
    place, n = folder / "versions" / name, source.num_rows
    (place / "data").mkdir(parents=True)
    table = source.append_column("row_id", pa.array(np.arange(n)))
    table = table.append_column("group", pa.array(np.arange(n, dtype=np.int32)))
    table = table.append_column("is_outlier", pa.array([False] * n))
    table = table.append_column("weight", pa.array([1.0] * n, pa.float32()))
    table = table.append_column("split", pa.array(["train"] * n))
    for column, values in published.items():
        if column in table.column_names:
            table = table.drop_columns([column])
        table = table.append_column(column, values)
    shards, parts, first = [], [], 0
    for number, rows in enumerate(sizes or [n]):
        part = f"data/part-{number:05d}.parquet"
        pq.write_table(table.slice(first, rows), place / part)
        shards.append({"path": "f", "first_row": first, "rows": rows, "range": [number, number + 1]})
        parts.append({"path": part, "rows": rows})
        first += rows
    manifest = {
        "version": name,
        "rows": n,
        "parts": parts,
        "schema": [{"name": field.name, "type": str(field.type)} for field in table.schema],
        "summary": {"groups": {str(row): 1 for row in range(n)}},
        "outputs": [
            {"name": name, "operator": USUAL_ADDER.get(name, "x"), "description": ""}
            for name in table.column_names
            if name not in source.column_names
        ],
        "source": {"shards": shards, "files": {"f": name}},
        "operators": [],
    }
    return Version(place, manifest)


def pairs_of(before: Version, after: Version, key: Sequence[str] = ()) -> list[tuple[int, int]]:
    """Row ids of the matched rows; every row of both versions is in one batch exactly once."""
    found, alone = [], ([], [])  # type: ignore[var-annotated]
    with RowPairs(before, after, key) as pairs:
        for batch in pairs.batches():
            found += zip(*(side["row_id"].to_pylist() for side in (batch.then, batch.now)), strict=True)
            for side, table in zip(alone, (batch.gone, batch.new), strict=True):
                side += table["row_id"].to_pylist()
    for side, of in enumerate((before, after)):
        assert sorted([*(pair[side] for pair in found), *alone[side]]) == [*range(of.manifest["rows"])]
    return sorted(found)


def joined(then: list[Any], now: list[Any]) -> list[tuple[int, int]]:
    """Brute force: the k-th row of a value before and the k-th after."""
    seen: Counter[Any] = Counter()
    places = {}
    for row, value in enumerate(now):
        places[value, seen[value]] = row
        seen[value] += 1
    seen.clear()
    found = []
    for row, value in enumerate(then):
        if (value, seen[value]) in places:
            found.append((row, places[value, seen[value]]))
        seen[value] += 1
    return found


rows = st.lists(st.tuples(st.sampled_from("ab|:"), st.one_of(st.none(), st.integers(0, 2))), max_size=12)


def test_equal_rows_are_matched_a_bounded_number_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows have one digest, so that their range holds all of them."""
    monkeypatch.setattr(row_pairs, "ROWS_IN_MEMORY", 10)
    for number, (then, now) in enumerate(((100, 73), (41, 41), (5, 100))):
        sides = [
            version(
                tmp_path / str(number), name, pa.table({"a": ["x"] * n + [f"{k}" for k in range(30)]}), sizes
            )
            for name, n, sizes in (
                ("v1", then, [7] * ((then + 30) // 7) + [(then + 30) % 7]),
                ("v2", now, ()),
            )
        ]
        with RowPairs(*sides) as pairs:
            sizes = [(b.then.num_rows + b.gone.num_rows, b.new.num_rows) for b in pairs.batches()]
            assert pairs.counts.repeated == [then - 1, now - 1]
        assert max(max(size) for size in sizes) <= 50
        assert sum(size[0] for size in sizes) == then + 30
        expected = joined(*([*(["x"] * n), *range(30)] for n in (then, now)))
        assert pairs_of(*sides) == sorted(expected)


def test_a_near_duplicate_is_the_reason(tmp_path: Path) -> None:
    source = pa.table({"a": ["r", "s", "t", "u"]})
    before = version(tmp_path, "v1", source, duplicate_of=pa.array([None, 0, None, 0], pa.int64()))
    after = version(
        tmp_path,
        "v2",
        source,
        duplicate_of=pa.array([None, None, 1, 0], pa.int64()),
        weight=pa.array([1.0, 1.0, 0.0, 1.0], pa.float32()),
    )
    plain = version(tmp_path, "v3", source)
    file = tmp_path / "rows.parquet"
    for then, now, expected in (
        (
            before,
            after,
            {
                1: "duplicates: it nearly duplicates no older row any more",
                2: "duplicates: it nearly duplicates the older row 1 now; weights was not in both recipes",
            },
        ),
        (
            plain,
            before,
            {
                1: "duplicates: it nearly duplicates the older row 0 now",
                3: "duplicates: it nearly duplicates the older row 0 now",
            },
        ),
        (before, before, {}),
    ):
        found = diff(then, now)
        with RowPairs(then, now) as pairs:
            write_row_changes(pairs, found, file)
        rows = pq.read_table(file).to_pylist()
        assert {row["row"]: row["reason"] for row in rows} == expected
        assert found["changed"]["duplicate"]["rows"] == len(expected)
        for row in rows:
            of = [side.manifest["rows"] and pq.read_table(side.folder / "data") for side in (then, now)]
            values = [
                table["duplicate_of"].to_pylist()[row["row"]]
                if "duplicate_of" in table.column_names
                else None
                for table in of
            ]
            assert [row["duplicate_of_before"], row["duplicate_of_after"]] == values


def test_what_becomes_of_near_duplicates_is_the_reason(tmp_path: Path) -> None:
    source, of = pa.table({"a": ["r", "s", "t"]}), pa.array([None, 0, 1], pa.int64())
    sides = []
    for name, weight in (("v1", 1.0), ("v2", 0.0)):
        weights = pa.array([1.0 if weight else 1.5, weight, 1.0], pa.float32())
        made = version(tmp_path, name, source, duplicate_of=of, weight=weights)
        entry = {"name": "duplicates", "params": {"weight": weight}, "version": 1, "fingerprint": name}
        made.manifest["operators"] = [
            entry,
            {"name": "weights", "params": {}, "version": 1, "fingerprint": "f"},
        ]
        sides.append(made)
    found, file = diff(*sides), tmp_path / "rows.parquet"
    with RowPairs(*sides) as pairs:
        write_row_changes(pairs, found, file)
    assert {row["row"]: row["reason"] for row in pq.read_table(file).to_pylist()} == {
        0: "weights: other neighbours in the version",
        1: "duplicates: other weight, and it nearly duplicates the older row 0; "
        "weights: other neighbours in the version",
    }


@given(then=rows, now=rows, in_memory=st.integers(1, 4))
def test_content_matches_as_a_join_of_all_rows(then: list[Any], now: list[Any], in_memory: int) -> None:
    schema = pa.schema([("t", pa.string()), ("n", pa.int64())])
    tables = [pa.table([[t for t, _ in side], [n for _, n in side]], schema=schema) for side in (then, now)]
    half = len(then) // 2
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as name:
        patch.setattr(row_pairs, "ROWS_IN_MEMORY", in_memory)
        before = version(Path(name), "v1", tables[0], [half, len(then) - half])
        after = version(Path(name), "v2", tables[1])
        assert pairs_of(before, after) == joined(then, now)


@pytest.mark.parametrize("types_differ", [False, True])
def test_intervals_of_months_are_compared(types_differ: bool) -> None:
    values = pa.array([(1, 2, 3), None, (1, 2, 4), (1, 2, 3)], pa.month_day_nano_interval())
    first, missing, other, again = digests(pa.table({"c": values}), [ComparedColumn("c", types_differ)])
    assert first == again
    assert len({first, missing, other}) == 3
    with pytest.raises(InputError, match="--key c: the column has the type month_day_nano_interval"):
        check_key_types(pa.table({"c": values}), [ComparedColumn("c", types_differ)])


def test_types_with_the_same_meaning_match(tmp_path: Path) -> None:
    lists = pa.array([[1.0, 2.0], [None, None], [3.0, None], [1.0, 2.0]], pa.list_(pa.float32(), 2))
    then = pa.table(
        {
            "n": pa.array([1, 2, None, 4]),
            "word": pa.array(["a", "b", None, "a"]).dictionary_encode(),
            "vector": lists,
            "place": pa.array([{"x": 1}, {"x": None}, None, {"x": 2}]),
            "raw": pa.array([b"1", b"", None, b"1:"]),
            "day": pa.array([0, 1, 2, None], pa.date32()),
            "old": pa.array([1, 1, 1, 1]),
        }
    )
    order = [3, 1, 0, 2]
    now = then.take(order).drop_columns(["old"]).append_column("more", pa.array([9, 9, 9, 9]))
    for name, kind in (("n", pa.float64()), ("word", pa.string()), ("day", pa.timestamp("ns"))):
        now = now.set_column(now.schema.get_field_index(name), name, now[name].cast(kind))
    before, after = version(tmp_path, "v1", then, [2, 2]), version(tmp_path, "v2", now, [1, 3])
    assert pairs_of(before, after) == [(0, 2), (1, 1), (2, 3), (3, 0)]
    found = diff(before, after)
    assert found["matched"]["content_columns"] == ["day", "n", "place", "raw", "vector", "word"]
    assert found["matched"]["by_content"] == 4
    columns = common_columns(before, after)
    nulls = pa.array([[1.0, 2.0], None, [3.0, None], None], pa.list_(pa.float32(), 2))
    then = then.set_column(then.schema.get_field_index("vector"), "vector", nulls)
    whole = digests(then, columns)
    assert whole == [digests(then.slice(row, 1), columns)[0] for row in range(4)]


def test_a_key_matches_rows_whose_other_columns_have_changed(tmp_path: Path) -> None:
    then = pa.table({"id": [7, 8, 9, 9, None], "a": ["x", "y", "z", "w", "n"]})
    now = pa.table({"id": [9.0, 10.0, 8.0, 9.0, 9.0, None], "a": ["z", "q", "other", "w", "z", "n"]})
    before, after = version(tmp_path, "v1", then, [3, 2]), version(tmp_path, "v2", now)
    assert pairs_of(before, after, ["id"]) == [(1, 2), (2, 0), (3, 3)]
    with RowPairs(before, after, ["id"]) as pairs:
        found = compare(pairs)
        file = tmp_path / "rows.parquet"
        write_row_changes(pairs, found, file)
        bytes_then = file.read_bytes()
        write_row_changes(pairs, found, file)
        assert file.read_bytes() == bytes_then
    assert found["matched"] == {
        "key": ["id"],
        "content_columns": [],
        "by_key": 3,
        "by_position": 0,
        "by_content": 0,
        "without_key": [1, 1],
        "repeated": [1, 2],
    }
    assert found["changed"]["source"]["rows"] == 1
    (example,) = found["changed"]["source"]["examples"]
    assert (example["key"], example["row"], example["before"]) == ("8", 2, None)
    written = {(row["change"], row["key"]): row for row in pq.read_table(file).to_pylist()}
    assert "other values in its source columns" in written["changed", "8"]["reason"]
    assert written["gone", "7"]["row"] == 0
    assert ("new", None) in written
    assert pairs_of(before, after, ["a", "id"]) == [(2, 0), (3, 3)]
    with pytest.raises(InputError, match=r"--key ids: the version v1 has no source.*Did you mean 'id'"):
        diff(before, after, key=["ids"])
    with pytest.raises(InputError, match="--key group: the version v1 has no source column"):
        diff(before, after, key=["group"])
    nested = version(tmp_path, "v3", pa.table({"id": [[1]]}))
    with pytest.raises(InputError, match=r"--key id: the column has the type list.*cannot be a key"):
        diff(nested, nested, key=["id"])


def test_rows_appended_to_a_csv_change_no_other_row(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{1000 + row},{rng.normal():.4f},{'no' if row % 3 else 'yes'}" for row in range(120)]
    names = []
    for n in (100, 120):
        (tmp_path / "t.csv").write_text("\n".join(["id,a,label", *lines[:n]]) + "\n")
        values = recipe_for(tmp_path / "t.csv", tmp_path / "out")
        names.append(run(Recipe.parse({**values, "truth": {}, "operators": OPERATORS})).version)
    for key, by in (([], "by_content"), (["--key", "id"], "by_key")):
        words = [
            "diff",
            *names,
            "--output",
            str(tmp_path / "out"),
            "--rows",
            str(tmp_path / "r.parquet"),
            *key,
        ]
        shown = CliRunner().invoke(app, [*words, "--json"])
        assert shown.exit_code == 0, shown.output
        found = json.loads(shown.stdout)
        assert found["rows"] == {"before": 100, "after": 120, "common": 100, "gone": 0, "new": 20}
        assert found["matched"][by] == 100
        new = [row for row in pq.read_table(tmp_path / "r.parquet").to_pylist() if row["change"] == "new"]
        assert [row["row"] for row in new] == [*range(100, 120)]
        assert {row["key"] for row in new} == ({str(1100 + row) for row in range(20)} if key else {None})
        text = " ".join(CliRunner().invoke(app, words).output.split())
        assert (
            "matched by the key id: 100" if key else "by content (3 source columns of both versions): 100"
        ) in text
