"""Surprising content of real tables has a defined use, or an error that names place and remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.plan.sources import check_source_columns
from engine.recipe.recipe import STANDARD_CHAIN
from operators.groups.by_column import Oracle
from operators.groups.params import OracleParams
from tests.data import small_recipe

N = 120
LABEL = ["a", "b"] * (N // 2)
NUMBERS = np.arange(N) % 17 / 4


def validated(folder: Path, *tables: pa.Table, recipe: dict[str, Any] | None = None, **source: Any) -> Any:
    data = folder / "data"
    data.mkdir()
    for part, table in enumerate(tables):
        pq.write_table(table, data / f"{part}.parquet")
    recipe = {
        "name": "r",
        "source": {"path": str(data), "label": "y", **source},
        "output": {"path": "out"},
        **(recipe or {}),
    }
    (folder / "r.yaml").write_text(yaml.safe_dump(recipe))
    return CliRunner().invoke(app, ["validate", str(folder / "r.yaml")])


def with_column(values: Any, label: Sequence[Any] = LABEL) -> pa.Table:
    return pa.table({"y": label, "n": NUMBERS[: len(label)], "c": values})


def use(done: Any) -> str:
    assert done.exit_code == 0, done.output
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("c "))
    return " ".join(line.split())


USED: dict[str, tuple[Any, list[str]]] = {
    "all missing": (pa.nulls(N, pa.float64()), ["unused", "all missing"]),
    "constant": (["same"] * N, ["unused", "constant"]),
    "a category of 10 MB": (
        ["x" * 10_000_000 if row == 5 else "yz"[row % 2] for row in range(N)],
        ["categorical", "3 values"],
    ),
    "infinite": (
        np.where(np.arange(N) == 3, np.inf, NUMBERS),
        ["numeric", "1 infinite: faults of their rows"],
    ),
    "all infinite": (np.full(N, np.inf), ["unused", "no usable number", "120 are infinite"]),
    "beyond float32": (
        np.array([1e300, -1e300, 3.0] * (N // 3)),
        ["numeric", "80 beyond the range of float32 (3.4e38): faults"],
    ),
    "all beyond float32": (
        np.array([1e39, 2e39] * (N // 2)),
        ["unused", "no usable number", "120 are beyond the range of float32"],
    ),
    "large integers": (
        2**60 + np.arange(N) % 5,
        ["unused", "identifier: 5 distinct whole numbers beyond 2^53", "`c: categorical`"],
    ),
    "large unsigned integers": (
        np.uint64(2**63) + np.arange(N, dtype=np.uint64) % 5,
        ["unused", "identifier: 5 distinct whole numbers beyond 2^53"],
    ),
    "bytes": ([bytes([row, 0, 1, 2]) for row in range(N)], ["unused", "is an image file (JPEG"]),
    "images": ([b"\x89PNG\r\n\x1a\n" + bytes([row]) for row in range(N)], ["unused", "operator `embed`"]),
    "lists of different lengths": (
        [[0.5] * (1 + row % 3) for row in range(N)],
        ["unused", "different lengths (22 of 64 rows have 1 numbers)"],
    ),
    "subnormal": (NUMBERS * 5e-324, ["numeric"]),
    "old and far dates": (
        [date(1500 + 6 * row, 1, 2) for row in range(N)],
        ["datetime", "1500-01-02 to 2214"],
    ),
    "decimals": (
        pa.array([str(row % 9) for row in range(N)]).cast(pa.decimal128(9, 2)),
        ["numeric", "0 to 8"],
    ),
    "zoned times": (pa.array(np.arange(N), pa.timestamp("us", tz="Asia/Tokyo")), ["datetime"]),
    "a dictionary": (pa.array(["u", "v", "w"] * 40).dictionary_encode(), ["categorical", "3 values: u 33%"]),
    "a struct": (pa.array([{"f": 1}] * N), ["unused", "source.flatten"]),
    "lists of text": ([["u", "v"], ["u"], []] * (N // 3), ["tags", "2 values: u 67%, v 33%"]),
    "the same list": ([["u", "v"]] * N, ["unused", "constant", "all rows have the entries u, v"]),
    "lists of lists": ([[["u"]]] * N, ["unused", "unsupported type", "list"]),
    "numbers in text": ([str(row % 31) for row in range(N)], ["numeric", "written as text"]),
    "identifiers": (
        [f"user-{row}" for row in range(N)],
        ["unused", "identifier", "operators.encode.columns"],
    ),
}


@pytest.mark.parametrize("case", USED)
def test_every_kind_of_column_has_a_use_or_a_reason(case: str, tmp_path: Path) -> None:
    values, words = USED[case]
    line = use(validated(tmp_path, with_column(values)))
    assert all(word in line for word in words), line
    assert len(line) < 300


def test_a_column_that_changes_its_type_between_files_names_both(tmp_path: Path) -> None:
    done = validated(tmp_path, with_column(NUMBERS), with_column(["word"] * N))
    assert done.exit_code == 2
    assert "1.parquet: column 'c' has type string, but double in" in done.stderr
    assert "0.parquet" in done.stderr


def test_whole_numbers_and_fractions_are_one_type(tmp_path: Path) -> None:
    done = validated(tmp_path, with_column(np.arange(N) % 7), with_column(NUMBERS))
    assert "numeric" in use(done)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (with_column([], label=pa.array([], pa.string())), "holds no rows"),
        (with_column(NUMBERS, label=["a"] * N), "has one value, 'a'"),
        (with_column(NUMBERS, label=pa.nulls(N, pa.string())), "has no value"),
        (with_column(NUMBERS, label=NUMBERS * np.pi + np.arange(N)), "120 distinct values"),
        (with_column(NUMBERS, label=[[1]] * N), "The label column has type list"),
    ],
)
def test_labels_that_name_no_classes_are_refused(table: pa.Table, message: str, tmp_path: Path) -> None:
    done = validated(tmp_path, table)
    assert done.exit_code == 2
    assert message in done.stderr


def test_large_integers_are_categories_where_the_recipe_says_so(tmp_path: Path) -> None:
    table = with_column(2**60 + np.arange(N) % 5)
    recipe = {"operators": {"encode": {"columns": {"c": "categorical"}}, **STANDARD_CHAIN}}
    line = use(validated(tmp_path, table, recipe=recipe))
    assert "categorical" in line
    assert "5 values: 1152921504606846976 20%" in line


def test_values_that_end_the_run_are_warned_of(tmp_path: Path) -> None:
    table = with_column(np.where(np.arange(N) == 3, np.inf, NUMBERS))
    expected = "column 'c': 1 infinite: faults of their rows, 0.8% of the rows, and the run would stop"
    assert expected in validated(tmp_path, table).stdout
    aside = ["--set", "source.on_error=quarantine", "--set", "source.max_error_rate=0.01"]
    done = CliRunner().invoke(app, ["validate", str(tmp_path / "r.yaml"), *aside])
    assert done.exit_code == 0
    assert "would stop" not in done.stdout


def test_lists_of_different_lengths_are_refused_as_vectors(tmp_path: Path) -> None:
    lists = [[0.5] * (1 + row % 3) for row in range(N)]
    done = validated(tmp_path, with_column(lists), features=["n", "c"])
    assert done.exit_code == 2
    assert "'c' cannot be used" in done.stderr
    assert "different lengths" in done.stderr


def test_a_feature_that_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    done = validated(tmp_path, with_column([{"f": 1}] * N), features=["n", "c"])
    assert done.exit_code == 2
    assert "source.features: 'c' cannot be a feature" in done.stderr
    assert "source.flatten" in done.stderr


@pytest.mark.parametrize(
    ("values", "kind", "remedy"),
    [
        (pa.array([["x"]] * N), "list<element: string>", r"dates\."),
        (pa.array([b"\xff"] * N), "binary", r"dates\."),
        (pa.array([b"\xff"] * N).dictionary_encode(), r"dictionary<values=binary, .*>", r"dates\."),
        (pa.array([{"q": 1}] * N), "struct<q: int64>", r"such as 'c\.q' with source\.flatten: \[c\]\."),
    ],
)
def test_true_groups_without_a_text_are_refused_by_the_plan(
    values: pa.Array, kind: str, remedy: str, tmp_path: Path
) -> None:
    operators = {"groups": {"method": "oracle", "column": "c"}}
    recipe = {"truth": {"group": "c"}, "operators": operators}
    done = validated(tmp_path, with_column(values), recipe=recipe)
    assert done.exit_code == 2
    text = " ".join(done.output.split())
    assert re.search(rf"operators\.groups: the column 'c' has the type {kind}, whose values cannot", text)
    assert re.search(remedy, text)


def test_true_groups_of_other_types_are_accepted_and_a_missing_column_is_named(tmp_path: Path) -> None:
    recipe, oracle = small_recipe(tmp_path), Oracle(OracleParams(column="c"))
    kinds = [pa.null(), pa.bool_(), pa.decimal128(3, 1), pa.duration("s"), pa.date32(), pa.time32("s")]
    for kind in (*kinds, pa.large_string(), pa.timestamp("us", "Europe/Berlin"), pa.float16()):
        check_source_columns([oracle], recipe, pa.schema([("c", kind)]))
    for kind in (pa.map_(pa.string(), pa.int8()), pa.large_list(pa.int8()), pa.binary(3)):
        with pytest.raises(InputError, match="cannot name groups"):
            check_source_columns([oracle], recipe, pa.schema([("c", kind)]))
    with pytest.raises(InputError, match=r"operators\.groups: the source has no column 'c'"):
        check_source_columns([oracle], recipe, pa.schema([("d", pa.string())]))


@pytest.mark.parametrize("key", ["group", "outlier"])
def test_the_label_is_no_truth(key: str, tmp_path: Path) -> None:
    """The run ended in the middle, with the remedy for another key."""
    done = validated(tmp_path, with_column(NUMBERS), recipe={"truth": {key: "y"}})
    assert done.exit_code == 2
    assert f"truth.{key}: 'y' is the label (source.label)" in " ".join(done.output.split())


def test_numbers_that_are_neither_true_nor_false_are_said(tmp_path: Path) -> None:
    done = validated(tmp_path, with_column(np.arange(N) / 8), recipe={"truth": {"outlier": "c"}})
    text = " ".join(done.output.split())
    assert (
        "truth.outlier: the column 'c' holds numbers that are neither true nor false, such as 0.125" in text
    )
