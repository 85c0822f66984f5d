"""``rowsieve predict`` and raw rows of a registered model: same bytes, faults of single rows, errors."""

from __future__ import annotations

import datetime
import json
import math
import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import engine
from engine.cli.app import app
from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.training.data.raw_rows import conform, table_of, with_points
from engine.training.serving.prediction import ModelFiles, _as_type, predict
from engine.training.serving.prediction_source import SourceRequest
from engine.training.serving.pyfunc import ServedModel
from tests.data import small_recipe, spurious_table, write_shards

QUICK = ["--executor", "local", "--set", "epochs=2", "--set", "batch_size=32"]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output with a registered model of the columns a, b and vector."""
    folder = tmp_path_factory.mktemp("predicted")
    engine.run(small_recipe(folder, tracking={"enabled": True}))
    done = CliRunner().invoke(
        app, ["retrain", "--dataset", str(folder / "out"), "--register", "small", *QUICK]
    )
    assert done.exit_code == 0, done.output
    return folder / "out"


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["predict", *arguments, "--executor", "local"])


def read(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("part-*.parquet"))])


def test_a_folder_is_predicted_shard_by_shard(output: Path, tmp_path: Path) -> None:
    rows = spurious_table(100, seed=1)
    write_shards(tmp_path / "in", rows, 3)
    done = command(
        "models:/small@challenger",
        str(tmp_path / "in"),
        str(tmp_path / "out"),
        "--tracking",
        str(output),
        "--keep",
        "label",
        "--json",
    )
    assert done.exit_code == 0, done.output
    record = json.loads(done.output)
    assert (record["rows"], record["failed"], len(record["parts"])) == (100, 0, 3)
    assert json.loads((tmp_path / "out" / "_predictions.json").read_text()) == record
    assert len(pd.read_parquet(tmp_path / "out")) == 100  # the record does not stand in the way
    found = read(tmp_path / "out")
    assert found.column_names == ["label", "prediction", "probability_no", "probability_yes", "reason"]
    assert found["label"].to_pylist() == rows["label"].to_pylist()
    assert np.mean(np.array(found["prediction"].to_pylist()) == np.array(rows["label"].to_pylist())) > 0.7
    again = command(
        "models:/small@challenger", str(tmp_path / "in"), str(tmp_path / "out"), "--tracking", str(output)
    )
    assert again.exit_code == 2
    assert "is not empty" in again.output
    (tmp_path / "file").write_text("x")
    again = command(
        "models:/small@challenger", str(tmp_path / "in"), str(tmp_path / "file"), "--tracking", str(output)
    )
    assert again.exit_code == 2
    assert "file is a file, not a folder" in again.output


@pytest.fixture(scope="module")
def model(output: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's folder as MLflow keeps it."""
    (found,) = (path.parent for path in (output / "mlartifacts").rglob("MLmodel"))
    return found


def test_kept_columns_of_csv_are_joined_to_the_rows_by_their_values(model: Path, tmp_path: Path) -> None:
    """Columns of the model are read as text, so that a word is a fault of its row, but kept as numbers."""
    rows = spurious_table(40, seed=2).select(["a", "b", "label", "vector"])
    frame = rows.to_pandas()
    frame["vector"] = [json.dumps([float(one) for one in vector]) for vector in frame["vector"]]
    frame["id"] = np.arange(len(frame))
    frame["a"] = frame["a"].astype(object)
    frame.loc[3, "a"] = "many"
    frame.to_csv(tmp_path / "rows.csv", index=False)
    request = SourceRequest(str(tmp_path / "rows.csv"), keep=["id", "a", "label"], allow_missing=["vector"])
    predict(str(model), request, str(tmp_path / "out"), LocalExecutor())
    found = pd.read_parquet(tmp_path / "out")
    assert [str(found[name].dtype) for name in ("id", "a")] == ["int64", "float64"]
    assert np.isnan(found["a"][3])
    assert "'many'" in found["reason"][3]


class Payload:
    """Runs when it is unpickled."""

    def __init__(self, trace: str) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.trace,)


def test_a_prediction_runs_no_code_of_the_model(model: Path, tmp_path: Path) -> None:
    """MLflow's own loader would import what the folder names, puts on the path, and has pickled."""
    write_shards(tmp_path / "in", spurious_table(30, seed=5), 1)
    forged, trace = shutil.copytree(model, tmp_path / "forged"), tmp_path / "trace"
    runs = f"import os\nos.mkdir({str(trace)!r})\n"
    for name in ("evil.py", "engine/__init__.py", "operators/__init__.py", "sitecustomize.py"):
        (forged / "code" / name).write_text(runs)
    (forged / "python_model.pkl").write_bytes(pickle.dumps(Payload(str(trace))))
    described = (forged / "MLmodel").read_text()
    changed = described.replace("engine.training.serving", "evil")
    assert changed != described
    (forged / "MLmodel").write_text(changed)
    found = predict(str(forged), SourceRequest(str(tmp_path / "in")), str(tmp_path / "out"), LocalExecutor())
    assert (found.rows, found.failed) == (30, 0)
    assert not trace.exists()


def test_a_folder_and_a_csv_give_the_same_predictions(model: Path, tmp_path: Path) -> None:
    """Text of numbers, other integer types and column orders are read as the columns of training."""
    rows = spurious_table(60, seed=2)
    write_shards(tmp_path / "in", rows, 1)
    predict(str(model), SourceRequest(str(tmp_path / "in")), str(tmp_path / "a"), LocalExecutor())
    texts = rows.set_column(0, "a", pa.array([repr(value) for value in rows["a"].to_pylist()]))
    texts = texts.append_column("extra", pa.array(["x"] * 60)).select(["extra", "vector", "b", "a"])
    write_shards(tmp_path / "texts", texts, 1)
    predict(str(model), SourceRequest(str(tmp_path / "texts")), str(tmp_path / "b"), LocalExecutor())
    assert read(tmp_path / "a").equals(read(tmp_path / "b"))


def test_a_bad_row_has_a_reason_and_the_others_their_predictions(model: Path, tmp_path: Path) -> None:
    rows = spurious_table(40, seed=3)
    good = ServedModel(model / "data" / "rowsieve").predict(rows.to_pandas())
    texts: list[Any] = [str(value) for value in rows["a"].to_pylist()]
    texts[3], texts[5], texts[7] = "abc", "?", "inf"
    write_shards(tmp_path / "in", rows.set_column(0, "a", pa.array(texts)), 2)
    found = predict(str(model), SourceRequest(str(tmp_path / "in")), str(tmp_path / "out"), LocalExecutor())
    assert (found.rows, found.failed) == (40, 2)
    answers = read(tmp_path / "out").to_pandas()
    bad = [3, 7]
    assert answers["prediction"].isna().to_numpy().nonzero()[0].tolist() == bad
    assert answers["reason"][3] == "column 'a' is not a number (value: 'abc')"
    assert answers["probability_yes"][5] == pytest.approx(0.5, abs=0.5)  # imputed by `encode`
    assert "'a'" in answers["reason"][7]
    rest = np.setdiff1d(np.arange(40), [*bad, 5])
    assert answers["prediction"][rest].tolist() == good["prediction"][rest].tolist()
    np.testing.assert_allclose(
        answers["probability_yes"][rest], good["probability_yes"][rest].astype(float), rtol=1e-6
    )


def test_rows_of_which_none_is_predicted_are_bad_input(model: Path, tmp_path: Path) -> None:
    rows = spurious_table(10, seed=3)
    write_shards(tmp_path / "in", rows.set_column(0, "a", pa.array(["old"] * 10)), 1)
    done = command(str(model), str(tmp_path / "in"), str(tmp_path / "out"), "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["failed"] == 10
    assert "None of the 10 rows" in done.stderr
    assert read(tmp_path / "out")["reason"].to_pylist() == ["column 'a' is not a number (value: 'old')"] * 10


@pytest.mark.slow
def test_one_word_in_a_column_of_a_csv_spoils_one_row(tmp_path: Path) -> None:
    """Without the vector, which a CSV cannot hold."""
    folder = tmp_path / "run"
    engine.run(
        small_recipe(
            folder,
            source={"features": ["a", "b"], "missing": ["-"], "strip": True},
            tracking={"enabled": True},
        )
    )
    done = CliRunner().invoke(app, ["retrain", "--dataset", str(folder / "out"), "--register", "m", *QUICK])
    assert done.exit_code == 0, done.output
    rows = spurious_table(30, seed=4).select(["a", "b"])
    lines = rows.to_pandas().astype(str)
    lines.loc[4, "b"], lines.loc[6, "b"] = "many", "-"
    pv.write_csv(pa.Table.from_pandas(lines, preserve_index=False), tmp_path / "rows.csv")
    found = predict(
        "models:/m/1",
        SourceRequest(str(tmp_path / "rows.csv")),
        str(tmp_path / "out"),
        LocalExecutor(),
        tracking=str(folder / "out"),
    )
    assert (found.rows, found.failed) == (30, 1)
    assert read(tmp_path / "out")["reason"][4].as_py() == "column 'b' is not a number (value: 'many')"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{tmp}", "{in}", "{tmp}/o"], "holds no model of"),
        (["{trained}", "{in}", "{tmp}/o"], "repeat `rowsieve retrain` with --register NAME"),
        (
            ["models:/none@champion", "{in}", "{tmp}/o", "--tracking", "{out}"],
            "does not give this model.*--register",
        ),
        (["{model}", "{tmp}/nothing", "{tmp}/o"], "nothing"),
        (["{model}", "{in}", "{tmp}/o", "--keep", "lable"], "Did you mean 'label'"),
        (["{model}", "{in}", "{tmp}/o", "--keep", "probability_yes"], "of the predictions has this name"),
        (["{model}", "{short}", "{tmp}/o"], "no column 'vector' \\(the model reads it\\)"),
        (["{model}", "{short}", "{tmp}/o", "--allow-missing", "vector"], "no rule for missing values"),
        (["{model}", "{in}", "{tmp}/o", "--allow-missing", "vektor"], "Did you mean 'vector'"),
        (["{model}", "{in}/none.csv", "{tmp}/o"], "Correct the path"),
    ],
)
def test_errors_name_the_fault_and_write_nothing(
    arguments: list[str], message: str, output: Path, model: Path, tmp_path: Path
) -> None:
    write_shards(tmp_path / "in", spurious_table(20), 1)
    write_shards(tmp_path / "short", spurious_table(20).select(["a", "b"]), 1)
    names = {
        "tmp": tmp_path,
        "in": tmp_path / "in",
        "out": output,
        "model": model,
        "short": tmp_path / "short",
        "trained": tmp_path / "trained",
    }
    names["trained"].mkdir()
    (names["trained"] / "training.json").write_text("{}")
    done = command(*(argument.format(**names) for argument in arguments))
    assert done.exit_code == 2, done.output
    assert re.search(message, " ".join(done.output.split()))
    assert not (tmp_path / "o").exists()


def test_a_column_is_imputed_only_where_this_is_allowed(model: Path, tmp_path: Path) -> None:
    """A misspelt name looks like a column without values; missing values of a column are fine."""
    rows = spurious_table(20)
    write_shards(tmp_path / "in", rows.drop_columns(["a"]).append_column("A", rows["a"]), 2)
    refused = command(str(model), str(tmp_path / "in"), str(tmp_path / "o"))
    assert refused.exit_code == 2
    refusal = " ".join(refused.output.split())
    assert "no column 'a' (the model reads it). Did you mean 'A'?" in refusal
    assert "give --allow-missing a." in refusal
    assert not (tmp_path / "o").exists()
    done = command(str(model), str(tmp_path / "in"), str(tmp_path / "o"), "--allow-missing", "a")
    assert done.exit_code == 0, done.output
    assert "so that all values are taken as missing: a." in " ".join(done.output.split())
    assert json.loads((tmp_path / "o" / "_predictions.json").read_text())["filled"] == ["a"]
    empty = rows.set_column(0, "a", pa.nulls(20, pa.float64()))
    write_shards(tmp_path / "empty", empty, 2)
    same = predict(str(model), SourceRequest(str(tmp_path / "empty")), str(tmp_path / "e"), LocalExecutor())
    assert same.filled == ()
    assert read(tmp_path / "e").equals(read(tmp_path / "o"))


def test_a_model_that_does_not_know_how_it_was_read_says_so(model: Path, tmp_path: Path) -> None:
    """As one that an earlier version registered: its separator is unknown."""
    shutil.copytree(model / "data" / "rowsieve", tmp_path / "old")
    record = json.loads((tmp_path / "old" / "serving.json").read_text())
    del record["reading"]
    (tmp_path / "old" / "serving.json").write_text(json.dumps(record))
    (tmp_path / "new.csv").write_text("a;b\n1;2\n")
    with pytest.raises(InputError, match=r"Register it again, or .* --option 'delimiter=;'"):
        predict(
            str(tmp_path / "old"),
            SourceRequest(str(tmp_path / "new.csv")),
            str(tmp_path / "o"),
            LocalExecutor(),
        )


def test_workers_open_a_model_once_for_equal_files(model: Path) -> None:
    files = ModelFiles.read(model / "data" / "rowsieve")
    other = ModelFiles(dict(files.files))
    assert files.open() is other.open()


def test_values_are_read_as_the_columns_of_training() -> None:
    schema = pa.schema(
        [("n", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("d", pa.timestamp("us"))]
    )
    frame = pd.DataFrame(
        {
            "n": [1.0, math.nan, "many"],
            "x": ["1", " 2.5 ", "x"],
            "s": [1, None, "a"],
            "d": ["2020-01-02", "", "no"],
        }
    )
    table, faults = table_of(frame, schema)
    assert table["n"].to_pylist() == [1, None, None]
    assert table["x"].to_pylist() == [1.0, 2.5, None]
    assert table["s"].to_pylist() == ["1", None, "a"]
    assert [value and value.isoformat() for value in table["d"].to_pylist()] == [
        "2020-01-02T00:00:00",
        None,
        None,
    ]
    assert faults == {2: "column 'n' is not a number (value: 'many')"}
    other, same = conform(pa.table({"x": ["1", "", "?", "-"], "more": [1, 2, 3, 4]}), schema, ["?"])
    assert other.column_names == ["x"]
    assert other["x"].to_pylist() == [1.0, None, None, None]
    assert list(same) == [3]


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.time64("us")])
def test_times_of_day_are_read_from_texts(kind: pa.DataType) -> None:
    schema = pa.schema([("t", kind)])
    table, faults = conform(pa.table({"t": ["14:56:16", "", " 09:30 ", "noon"]}), schema)
    assert table.schema.field("t").type == kind
    assert table["t"].to_pylist() == [datetime.time(14, 56, 16), None, datetime.time(9, 30), None]
    assert faults == {3: "column 't' is not a date (value: 'noon')"}


def test_whole_numbers_with_a_decimal_point_are_whole_numbers() -> None:
    """A column of whole numbers in which one is missing is written so by pandas."""
    schema = pa.schema([("n", pa.int64())])
    texts = ["58.0", "", " 46. ", "-7.00", "900719925474099312.0", "5"]
    numbers = [58, None, 46, -7, 900719925474099312, 5]
    table, faults = conform(pa.table({"n": texts}), schema)
    assert (table["n"].to_pylist(), faults) == (numbers, {})
    table, faults = table_of(pd.DataFrame({"n": [*texts, "old"]}), schema)
    assert table["n"].to_pylist() == [*numbers, None]
    assert faults == {6: "column 'n' is not a number (value: 'old')"}
    german_rows = with_points(pa.table({"n": ["58,0", "3"]}), schema, ",")
    assert conform(german_rows, schema)[0]["n"].to_pylist() == [58, 3]


@pytest.mark.parametrize("large", ["1e45", 1e45, 2**63, 10**30])
def test_a_column_of_whole_numbers_takes_fractions_and_large_numbers(large: Any) -> None:
    """A sample of training may hold whole numbers by chance, or because the source rounded them then."""
    schema = pa.schema([("n", pa.int64())])
    values = ["2.5", 3, "58.0", None, large, 2**60 + 1, "old", "nan", math.inf]
    numbers = [2.5, 3.0, 58.0, None, float(large), float(2**60)]
    table, faults = table_of(pd.DataFrame({"n": pd.Series(values, dtype=object)}), schema)
    assert table["n"].to_pylist()[:6] == numbers
    assert faults == {6: "column 'n' is not a number (value: 'old')"}
    table, faults = conform(pa.table({"n": [str(value) for value in (2.5, 3, large, "old")]}), schema)
    assert (table["n"].to_pylist(), list(faults)) == ([2.5, 3.0, float(large), None], [3])
    table, faults = conform(pa.table({"n": [2.5, 3.0, math.nan]}), schema)
    assert (table["n"].to_pylist()[:2], faults) == ([2.5, 3.0], {})


def german(rows: pa.Table) -> str:
    """Rows as a German table program writes them."""
    lines = ["Größe;Größe 2;label"]
    for a, b, label in zip(*(rows[name].to_pylist() for name in ("a", "b", "label")), strict=True):
        lines.append(f"{a:.6f};{b:.6f};{label}".replace(".", ","))
    return "\n".join(lines) + "\n"


def test_of_numbers_only_0_and_1_are_truth_values() -> None:
    """Arrow takes every number but 0 for true: 0.5, 7 and NaN too."""
    schema = pa.schema([("flag", pa.bool_())])
    for values in ([1, 0, 1], [True, False, True], [1.0, 0.0, 1.0], ["true", "0", "1"]):
        for table, faults in (
            conform(pa.table({"flag": values}), schema),
            table_of(pd.DataFrame({"flag": values}), schema),
        ):
            assert table["flag"].type == pa.bool_()
            assert (table["flag"].to_pylist(), faults) == ([v in (1, True, "true", "1") for v in values], {})
    values = [1.0, 0.5, None, math.nan, 7.0, -1.0]
    expected = {row: f"column 'flag' is neither true nor false (value: {values[row]})" for row in (1, 4, 5)}
    for table, faults in (
        conform(pa.table({"flag": values}), schema),
        table_of(pd.DataFrame({"flag": values}), schema),
        table_of(pd.DataFrame({"flag": pd.Series(values, dtype=object)}), schema),
    ):
        assert (table["flag"].to_pylist(), faults) == ([True, *[None] * 5], expected)
    assert conform(pa.table({"flag": [1.0, math.nan, None]}), schema)[0]["flag"].to_pylist() == [
        True,
        None,
        None,
    ]


def test_of_numbers_in_lists_only_0_and_1_are_truth_values() -> None:
    schema = pa.schema([("flags", pa.list_(pa.bool_()))])
    values = [[1.0, 0.0], [0.5], None, []]
    for table, faults in (
        conform(pa.table({"flags": values}), schema),
        table_of(pd.DataFrame({"flags": values}), schema),
    ):
        assert table["flags"].to_pylist() == [[True, False], None, None, []]
        assert list(faults) == [1]


def test_a_csv_is_read_as_that_of_training(tmp_path: Path) -> None:
    """Encoding, separator, decimal comma and new names are those of the recipe; options say others."""
    (tmp_path / "train.csv").write_text(german(spurious_table()), "cp1252")
    source = {
        "path": str(tmp_path / "train.csv"),
        "encoding": "cp1252",
        "options": {"delimiter": ";", "decimal": ","},
        "rename": {"Größe 2": "b"},
    }
    engine.run(small_recipe(tmp_path, source=source, truth={"group": None}, tracking={"enabled": True}))
    done = CliRunner().invoke(app, ["retrain", "--dataset", str(tmp_path / "out"), "--register", "m", *QUICK])
    assert done.exit_code == 0, done.output
    rows = spurious_table(50, seed=4)
    (tmp_path / "new.csv").write_text(german(rows), "cp1252")
    (tmp_path / "utf8.csv").write_text(german(rows), "utf-8")
    pq.write_table(rows.select(["a", "b"]).rename_columns(["Größe", "Größe 2"]), tmp_path / "new.parquet")
    tracking = ["--tracking", str(tmp_path / "out")]
    for name, more in (
        ("new.csv", []),
        ("new.parquet", []),
        ("new.csv", ["--option", "delimiter=;", "--option", "decimal=,"]),
        ("utf8.csv", ["--encoding", "utf-8"]),
    ):
        out = tmp_path / f"{name}{len(more)}"
        done = command("models:/m/1", str(tmp_path / name), str(out), *tracking, *more)
        assert done.exit_code == 0, done.output
        assert "50 rows predicted" in done.output.replace("\n", " ")
        assert "0 rows without a prediction" in done.output.replace("\n", " ")
    a, b, c, d = (
        read(tmp_path / name)["probability_yes"].to_numpy()
        for name in ("new.csv0", "new.parquet0", "new.csv4", "utf8.csv2")
    )
    np.testing.assert_allclose(a, b, atol=1e-5)
    np.testing.assert_array_equal(a, c)
    np.testing.assert_array_equal(a, d)
    wrong = command(
        "models:/m/1", str(tmp_path / "new.csv"), str(tmp_path / "w"), *tracking, "--option", "delimter=;"
    )
    assert wrong.exit_code == 2
    assert "Did you mean 'delimiter'" in " ".join(wrong.output.split())


class Stopping(LocalExecutor):
    """Stops before the third part."""

    def map(self, fn: Any, items: Any, **_: Any) -> Any:
        for place, item in enumerate(items):
            if place == 2:
                raise KeyboardInterrupt
            yield fn(item)


def refuse_forged_parts(model: Path, source: Path, out: Path) -> None:
    """A pipe was waited for, and a part of other rows was accepted."""
    first, aside = out / "part-00000.parquet", out.parent / "aside"
    first.rename(aside)
    os.mkfifo(first)
    with pytest.raises(InputError, match=r"part-00000.parquet was not written by this prediction"):
        predict(str(model), SourceRequest(str(source)), str(out), LocalExecutor())
    first.unlink()
    pq.write_table(pa.table({"reason": ["x"] * 31}), first)
    with pytest.raises(InputError, match=r"it has 31 rows, and its shard 30. Remove it"):
        predict(str(model), SourceRequest(str(source)), str(out), LocalExecutor())
    aside.rename(first)


def test_an_interrupted_prediction_goes_on(model: Path, tmp_path: Path) -> None:
    write_shards(tmp_path / "in", spurious_table(90, seed=5), 3)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        predict(str(model), SourceRequest(str(tmp_path / "in")), str(out), Stopping())
    written = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert len(written) == 2
    assert not (out / "_predictions.json").exists()
    refuse_forged_parts(model, tmp_path / "in", out)
    found = predict(str(model), SourceRequest(str(tmp_path / "in")), str(out), LocalExecutor())
    assert (found.rows, found.kept, len(found.parts)) == (90, 2, 3)
    assert written.items() <= {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}.items()
    whole = predict(str(model), SourceRequest(str(tmp_path / "in")), str(tmp_path / "whole"), LocalExecutor())
    assert whole.parts == found.parts
    write_shards(tmp_path / "in", spurious_table(90, seed=6), 3)
    with pytest.raises(
        InputError, match="is not empty: it holds predictions of another model, of other rows"
    ):
        predict(str(model), SourceRequest(str(tmp_path / "in")), str(out), LocalExecutor())


def test_a_kept_fraction_among_whole_numbers_is_null() -> None:
    """Rows of all shards have one type, that of the model, though a late shard holds a fraction."""
    found = _as_type(pa.chunked_array([[1.0, 2.5, None]]), pa.int64())
    assert (found.type, found.to_pylist()) == (pa.int64(), [1, None, None])
