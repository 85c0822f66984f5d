"""Bad input on the command line: exit code 2, one paragraph with place and fix, nothing written."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner, Result

from engine.cli.app import app
from tests.data import recipe_for, spurious_table, write_csv, write_shards

Make = Callable[[Path], Path]


def command(folder: Path, source: Path, *options: str, label: str = "label", name: str = "run") -> Result:
    """Run a recipe over ``source`` as a user would."""
    recipe = recipe_for(source, folder / "out", source={"label": label}, truth={"group": None})
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return CliRunner().invoke(app, [name, str(path), *options])


def replaced(column: str, values: list[object]) -> Make:
    """Shards in which the first values of a column are others."""

    def make(folder: Path) -> Path:
        table = spurious_table()
        old = table.column(column).to_pylist()
        index = table.column_names.index(column)
        changed = table.set_column(index, column, pa.array(old[:60] + values + old[60 + len(values) :]))
        write_shards(folder / "data", changed)
        return folder / "data"

    return make


def csv_with(change: Callable[[list[str]], list[str]]) -> Make:
    """A CSV file whose lines were changed."""

    def make(folder: Path) -> Path:
        path = folder / "data.csv"
        write_csv(path, spurious_table())
        path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
        return path

    return make


def missing(folder: Path) -> Path:
    write_shards(folder / "data", spurious_table())
    return folder / "dta"


def empty(folder: Path) -> Path:
    write_shards(folder / "data", spurious_table().slice(0, 0), shards=1)
    return folder / "data"


def truncated(folder: Path) -> Path:
    write_shards(folder / "data", spurious_table())
    path = folder / "data" / "s2.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    return folder / "data"


def one_class(folder: Path) -> Path:
    table = spurious_table()
    write_shards(folder / "data", table.filter(pa.compute.equal(table.column("label"), "yes")))
    return folder / "data"


def latin1(folder: Path) -> Path:
    path = folder / "data.csv"
    path.write_bytes("a,label\n1,ja\n2,nein\n3,m\u00f6glich\n".encode("latin-1"))
    return path


def ragged_vectors(folder: Path) -> Path:
    table = spurious_table()
    vectors: list[list[float]] = [[0.0, 1.0]] * 240
    vectors[61] = [0.0]
    write_shards(folder / "data", table.set_column(2, "vector", pa.array(vectors, pa.list_(pa.float32()))))
    return folder / "data"


def mixed_types(folder: Path) -> Path:
    write_shards(folder / "data", spurious_table())
    table = spurious_table()
    text = table.set_column(0, "a", pa.array(["x"] * 240))
    pq.write_table(text, folder / "data" / "s9.parquet")
    return folder / "data"


CASES: list[tuple[Make, list[str]]] = [
    (missing, ["dta", "'data'"]),
    (empty, ["no rows"]),
    (truncated, ["s2.parquet", "write or copy it again"]),
    (one_class, ["label", "'yes'"]),
    (replaced("b", [0.0, float("inf")]), ["s1.parquet", "row 1", "'b'", "inf"]),
    (replaced("label", ["yes", None]), ["s1.parquet", "row 1", "'label'", "null"]),
    (ragged_vectors, ["s1.parquet", "row 1", "'vector'"]),
    (mixed_types, ["s9.parquet", "'a'", "string", "double"]),
    (latin1, ["data.csv", "UTF-8"]),
    (csv_with(lambda lines: [*lines[:99], "x" + lines[99], *lines[100:]]), ["data.csv", "'a'"]),
    (csv_with(lambda lines: [*lines[:99], lines[99] + ",7", *lines[100:]]), ["data.csv", "line 100"]),
]


@pytest.mark.parametrize(("make", "words"), CASES)
def test_bad_data(make: Make, words: list[str], tmp_path: Path) -> None:
    result = command(tmp_path, make(tmp_path))
    expect_clear(result, words)
    assert not (tmp_path / "out" / "CURRENT").exists()
    assert not list((tmp_path / "out").glob("versions/*"))
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(("value", "word"), [(None, "null"), (float("nan"), "NaN")])
def test_missing_values_that_the_recipe_forbids(value: float | None, word: str, tmp_path: Path) -> None:
    source = replaced("a", [value])(tmp_path)
    result = command(tmp_path, source, "--set", "operators.encode.numeric.missing=fail")
    expect_clear(result, ["s1.parquet", "row 0", "'a'", f"is {word}"])


def test_missing_label_column(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", spurious_table())
    result = command(tmp_path, tmp_path / "data", label="lable")
    expect_clear(result, ["source.label", "'lable'", "Did you mean 'label'"])
    assert not (tmp_path / "out").exists()


def test_unknown_recipe_key(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", spurious_table())
    result = command(tmp_path, tmp_path / "data", "--set", "operators.probe.lr2=1")
    expect_clear(result, ["operators.probe.lr2", "unknown key", "Did you mean 'lr'"])
    assert not (tmp_path / "out").exists()


def test_unwritable_output(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", spurious_table())
    (tmp_path / "out").write_text("a file")
    expect_clear(command(tmp_path, tmp_path / "data"), [str(tmp_path / "out"), "output.path"])
    assert (tmp_path / "out").read_text() == "a file"


def test_structs_as_features(tmp_path: Path) -> None:
    table = spurious_table()
    write_shards(tmp_path / "data", table.append_column("place", pa.array([{"lat": 1.0}] * 240)))
    result = command(tmp_path, tmp_path / "data", "--set", "source.features=[a, place]")
    expect_clear(result, ["'place'", "struct", "source.features", "source.flatten"])


def test_validate_and_plan_find_it_too(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", spurious_table())
    for name in ("validate", "plan", "status"):
        result = command(tmp_path, tmp_path / "data", label="lable", name=name)
        expect_clear(result, ["'lable'"])


def test_a_trace_only_with_v(tmp_path: Path) -> None:
    result = command(tmp_path, tmp_path / "nothing", "-v")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr


def expect_clear(result: Result, words: list[str]) -> None:
    """Exit code 2, one paragraph on standard error that holds the words, no trace."""
    assert result.exit_code == 2, result.output
    before, found, text = result.stderr.partition("error: ")
    assert found
    assert all(" done " in line for line in before.splitlines())
    assert "Traceback" not in result.output
    assert len(text.splitlines()) == 1
    assert [word for word in words if word not in text] == [], text
