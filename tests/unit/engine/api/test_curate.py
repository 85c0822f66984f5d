"""``rowsieve.curate`` gives the same result for any table library, and errors that name the argument."""

from __future__ import annotations

import ast
import datetime as dt
import decimal
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import rowsieve
from engine.api.curation import _worst_group
from engine.api.tables import as_arrow, write_input
from engine.core.errors import BudgetError, InputError
from tests.data import spurious_table

polars = pytest.importorskip("polars")
PLAIN = {"groups": {"method": "none"}, "weights": {}, "split": {}}
"""A chain without a probe, which takes well below a second."""


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return spurious_table().drop_columns(["vector"])


@pytest.fixture(scope="module")
def curated(table: pa.Table) -> Any:
    operators = {
        "probe": {"l2": 0.05},
        "gradients": {},
        "groups": {"min_samples": [5, 10]},
        "weights": {"method": "group_balanced"},
        "split": {"validation": 0.2},
    }
    return rowsieve.curate(table, label="label", truth="truth", operators=operators)


def test_rows_keep_their_order_and_columns(curated: Any, table: pa.Table) -> None:
    assert curated.table.select(table.column_names).equals(table)
    added = ["row_id", "group", "is_outlier", "outlier_source", "weight", "split"]
    assert curated.table.column_names == [*table.column_names, *added]
    assert curated.table["row_id"].to_pylist() == [*range(table.num_rows)]


def test_weights_and_split_are_those_of_the_table(curated: Any) -> None:
    assert curated.weights.dtype == np.float32
    assert curated.weights.tolist() == curated.table["weight"].to_pylist()
    assert len(set(curated.weights.tolist())) > 1
    assert curated.split.tolist() == curated.table["split"].cast(pa.string()).to_pylist()
    assert curated.split.dtype.kind == "U"
    assert curated.weights[curated.split == "train"].mean() == pytest.approx(1, abs=1e-5)


def test_groups_add_up(curated: Any) -> None:
    groups, table = curated.groups, curated.table
    assert groups["rows"].sum() == table.num_rows
    assert groups["share"].sum() == pytest.approx(1)
    for row in groups.itertuples():
        mask = pc.and_(pc.equal(table["group"], row.group), pc.equal(table["label"], row[2]))
        assert pc.sum(mask).as_py() == row.rows


def test_whole_numbers_as_labels_are_described_where_some_are_missing(table: pa.Table) -> None:
    labels = table["label"].to_pylist()
    codes = [None, *(int(label == labels[0]) for label in labels[1:])]
    faulty = table.set_column(table.column_names.index("label"), "label", pa.array(codes, pa.int64()))
    found = rowsieve.curate(
        faulty, label="label", operators=PLAIN, source={"on_error": "quarantine", "max_error_rate": 0.1}
    )
    groups = found.groups
    assert {type(name) for name in groups["class"]} == {int}
    assert all(groups["description"])
    assert groups.equals(rowsieve.open(found.path).groups)
    assert groups["rows"].sum() == table.num_rows - 1
    assert groups["share"].sum() == pytest.approx(1)


def test_the_rows_are_those_that_were_given_though_another_version_is_current(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_beside_another(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        result = rowsieve.run(*arguments, **options)
        rowsieve.curate(table.slice(0, 120), label="label", operators=PLAIN, output=tmp_path / "out")
        return result

    monkeypatch.setattr("rowsieve.curation.run", run_beside_another)
    found = rowsieve.curate(table, label="label", operators=PLAIN, output=tmp_path / "out")
    assert found.num_rows == table.num_rows


def test_accuracy_is_that_of_the_probe(curated: Any) -> None:
    groups = curated.groups
    result = rowsieve.run(curated.recipe)
    expected = next(one.metrics["train_accuracy"] for one in result.operators if one.name == "probe")
    assert np.average(groups["accuracy"], weights=groups["rows"]) == pytest.approx(expected)


@pytest.mark.parametrize("library", ["pandas", "pandas_with_index", "polars", "batches", "file"])
def test_every_library_gives_the_same_result(
    library: str, curated: Any, table: pa.Table, tmp_path: Path
) -> None:
    pq.write_table(table, tmp_path / "rows.parquet")
    data = {
        "pandas": table.to_pandas(),
        "pandas_with_index": table.to_pandas().set_index(pd.Index(range(7, 7 + table.num_rows), name="key")),
        "polars": polars.from_arrow(table),
        "batches": table.to_reader(max_chunksize=17),
        "file": tmp_path / "rows.parquet",
    }[library]
    named = pytest.warns(UserWarning, match="key") if library == "pandas_with_index" else nullcontext()
    with named:
        found = rowsieve.curate(data, label="label", truth="truth", operators=curated.recipe.operators)
    assert found.table.equals(curated.table)
    assert found.groups.equals(curated.groups)


def test_the_report_is_drawn_when_it_is_asked_for(curated: Any, tmp_path: Path) -> None:
    assert not list(curated.path.parent.parent.glob("reports/*.html"))
    path = curated.report()
    assert path == curated.report()
    assert "<html" in path.read_text("utf-8")
    assert curated.report(tmp_path / "copy.html").read_bytes() == path.read_bytes()


def test_a_notebook_shows_the_groups(curated: Any) -> None:
    shown = curated._repr_html_()
    assert f"{curated.num_rows:,} rows" in shown
    assert shown.count("<tr") == len(curated.groups) + 1
    assert repr(curated).startswith(f"Curated('{curated.version}')")


def test_a_notebook_shows_a_result_whose_groups_are_not_described(table: pa.Table, tmp_path: Path) -> None:
    """The file is gone, or the step that writes it failed; names of features may come one by one."""
    names = (name for name in table.column_names if name not in ("label", "truth"))
    found = rowsieve.curate(table, label="label", features=names, output=tmp_path)
    for file in tmp_path.rglob("*.groups.json"):
        file.unlink()
    assert "groups not described" in repr(found)
    assert found._repr_html_().endswith("</p>")


def test_a_notebook_compares_groups_of_few_rows_as_one() -> None:
    def sentence(*rows: tuple[int, int, float]) -> str:
        groups, sizes, accuracy = zip(*rows, strict=True)
        return _worst_group(
            pd.DataFrame({"group": groups, "class": "a", "rows": sizes, "accuracy": accuracy})
        )

    large = [(0, 100, 0.9), (1, 100, 0.8)]
    assert "least accurate on group 1 of class a: 80% of 100 rows, against 85%" in sentence(*large)
    assert "least accurate on group 1 of class a" in sentence(*large, (2, 2, 0.0), (-1, 90, 0.1))
    pooled = sentence(*large, (2, 30, 0.0), (3, 30, 0.1))
    assert "on the 2 groups with fewer than 50 rows, taken together: 5% of 60 rows" in pooled
    assert sentence(*large[:1], (2, 2, 0.0)) == ""


def test_a_notebook_warns_of_a_class_without_a_figure() -> None:
    rng = np.random.default_rng(0)
    label = np.repeat(["a", "b", "far"], [300, 200, 20])
    x = rng.normal(0, 1, 520) + np.repeat([0.0, 2.0, 6.0], [300, 200, 20])
    found = rowsieve.curate(pd.DataFrame({"x": x, "z": rng.normal(0, 1, 520), "label": label}), label="label")
    assert "Warning: operators.cues: the class 'far' (" in repr(found)
    assert "the class &#x27;far&#x27; (" in found._repr_html_()


def test_a_notebook_shows_class_names_as_text(tmp_path: Path) -> None:
    table = spurious_table().drop_columns(["vector"])
    wild = pc.if_else(pc.equal(table["label"], "yes"), "<script>alert(1)</script>", "no")
    found = rowsieve.curate(table.set_column(2, "label", wild), label="label", truth="truth")
    assert "<script" not in found._repr_html_()


def test_a_named_output_is_kept_and_reused(table: pa.Table, tmp_path: Path) -> None:
    first = rowsieve.curate(table, label="label", output=tmp_path / "out")
    committed = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "store").rglob("*.parquet")}
    again = rowsieve.curate(table.to_pandas(), label="label", output=tmp_path / "out")
    assert again.version == first.version
    assert {path: path.stat().st_mtime_ns for path in committed} == committed
    assert len(list((tmp_path / "out" / "input").iterdir())) == 1
    assert rowsieve.open(tmp_path / "out").to_arrow().equals(again.table)


def test_a_tilde_is_the_home_folder(table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = rowsieve.curate(table, label="label", operators=PLAIN, output="~/out")
    assert str(found.path).startswith(f"{tmp_path}/out/versions/")


def test_a_temporary_output_goes_with_the_result(table: pa.Table) -> None:
    found = rowsieve.curate(table, label="label", operators=PLAIN)
    folder = Path(found.recipe.output.path)
    assert folder.is_dir()
    del found
    assert not folder.exists()


def test_without_a_probe_no_accuracy_is_known(table: pa.Table) -> None:
    found = rowsieve.curate(table, label="label", operators=PLAIN)
    assert found.groups["accuracy"].isna().all()
    assert "least accurate" not in repr(found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"label": "lable"}, "no column 'lable'. Did you mean 'label'"),
        ({"features": ["x"]}, "source.features: the source has no column"),
        ({"truth": "trut"}, "truth: the source has no column 'trut'. Did you mean 'truth'"),
        ({"truth": {"groop": "truth"}}, "curate: truth.groop: unknown key. Did you mean 'group'"),
        ({"operators": ["groupz"]}, "there is no such operator. Did you mean 'groups'"),
        ({"operators": "groups"}, "give a list of names"),
        ({"features": "ab"}, "features='ab': give a list of names"),
        ({"operators": {"split": {"validation": 2}}}, "split.validation"),
        ({"source": {"on_eror": "fail"}}, "curate: source.on_eror: unknown key. Did you mean 'on_error'"),
        ({"source": {"label": "x"}}, "give it as the argument label"),
        ({"source": {"path": "x"}}, "give it as the argument data"),
        ({"source": {"features": ["x"]}}, "give it as the argument features"),
        ({"label": 1}, "label=1: give the name of a column, a text, such as '1'."),
        ({"label": None}, "label=None: give the name of a column, a text."),
        ({"features": [1]}, "features: 1: give names of columns, texts, such as '1'."),
        ({"output": " "}, "output is an empty text"),
        ({"output": "s3://bucket/out"}, "output='s3://bucket/out': curate writes to a local folder."),
        ({"output": Path("memory://x")}, "curate writes to a local folder."),
        ({"output": __file__}, "is a file. Name a folder."),
        ({"output": f"{__file__}/out"}, "is a file. Name a folder."),
        ({"source": {"classes": ["a"]}}, "curate: source.classes: needs at least 2 entries"),
        ({"data": pd.DataFrame({"label": []})}, "curate: data has no rows."),
        ({"seed": -1}, "curate: seed"),
        ({"data": [1, 2, 3]}, "data has the type list"),
        ({"data": polars.LazyFrame({"label": [1]})}, "data has the type LazyFrame"),
        ({"data": ""}, "data is an empty text"),
        ({"data": "no/such/place"}, "no/such/place"),
        ({"data": pd.DataFrame({"label": [1, "a", None, {}]})}, "cannot be read as a table"),
        (
            {"data": pd.DataFrame({"size": ["a", 1], "label": [0, 1]})},
            "column 'size' holds values that are not of one type",
        ),
        (
            {
                "data": pd.DataFrame({"x": range(90), "label": [f"k{row}" for row in range(90)]}),
                "truth": None,
            },
            "'label' has 90 distinct values, such as 'k0', 'k1', 'k10': it is free text",
        ),
        (
            {"data": pd.DataFrame({"x": range(90), "label": np.arange(90) / 7}), "truth": None},
            "'label' has 90 distinct values",
        ),
        ({"data": pd.DataFrame([[1, 2]], columns=["label", "label"])}, "label"),
    ],
)
def test_errors_name_the_argument(arguments: dict[str, Any], message: str, table: pa.Table) -> None:
    given = {"data": table, "label": "label", "truth": "truth"} | arguments
    with pytest.raises(rowsieve.InputError, match=message.replace(".", r"\.")):
        rowsieve.curate(given.pop("data"), **given)


def test_a_taken_name_needs_a_prefix(table: pa.Table) -> None:
    taken = table.append_column("group", pa.array(range(table.num_rows)))
    with pytest.raises(rowsieve.InputError, match="prefix='rowsieve_'"):
        rowsieve.curate(taken, label="label", truth="truth", operators=PLAIN)
    found = rowsieve.curate(taken, label="label", truth="truth", operators=PLAIN, prefix="rowsieve_")
    assert "rowsieve_group" in found.table.column_names
    assert set(found.split) == {"train", "validation"}
    assert len(found.groups) == 2


def test_types_of_other_libraries_become_plain() -> None:
    views = pa.table(
        {
            "text": pa.array(["a"], pa.string_view()),
            "list": pa.array([[1.0]], pa.large_list(pa.float32())),
            "category": pa.array(["a"], pa.large_string()).dictionary_encode(),
            "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2)),
        }
    )
    assert [str(kind) for kind in as_arrow(views).schema.types] == [
        "string",
        "list<item: float>",
        "dictionary<values=string, indices=int32, ordered=0>",
        "fixed_size_list<item: double>[2]",
    ]


def test_a_large_table_has_row_groups_to_cut_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.api.tables.ROW_GROUP_BYTES", 8 * 100)
    path = write_input(pa.table({"x": np.arange(1000.0)}), tmp_path)
    assert pq.ParquetFile(path).num_row_groups == 10


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import sys, rowsieve\n"
        "heavy = {'torch', 'ray', 'mlflow', 'pyarrow', 'numpy', 'sklearn', 'pydantic', 'typer'}\n"
        "print(*(heavy & set(sys.modules)), *rowsieve.__dir__())\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.split() == sorted(rowsieve.__all__)


def test_unknown_names_are_attribute_errors() -> None:
    for module in (rowsieve, rowsieve.estimators):
        with pytest.raises(AttributeError, match="nothing"):
            module.nothing  # noqa: B018
        for name in module.__all__:
            assert getattr(module, name) is not None


def test_a_shadowed_package_stops_the_api(tmp_path: Path) -> None:
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "__init__.py").touch()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport rowsieve\nrowsieve.curate"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"ImportError: rowsieve: {tmp_path}/operators is found in place" in done.stderr


def test_errors_about_rows_name_the_data_and_no_temporary_file(table: pa.Table) -> None:
    at = table.column_names.index("a")
    values = table["a"].to_numpy().copy()
    values[[7, 9]] = np.inf
    faulty = table.set_column(at, "a", pa.array(values))
    with pytest.raises(InputError, match=r"^data: row 7: column") as stopped:
        rowsieve.curate(faulty, label="label", operators=PLAIN)
    with pytest.raises(BudgetError, match=r"2 of .*data: row 7: column .*; data: row 9: .*output") as budget:
        rowsieve.curate(
            faulty, label="label", operators=PLAIN, source={"on_error": "quarantine", "max_error_rate": 0}
        )
    assert tempfile.gettempdir() not in f"{stopped.value}{budget.value}"


def test_names_of_a_frame_are_not_lost_in_silence(table: pa.Table) -> None:
    frame = table.to_pandas()
    with pytest.warns(UserWarning, match=r"the index \(a\) is left out; data.reset_index\(\)"):
        assert "a" not in as_arrow(frame.set_index("a")).column_names
    with pytest.raises(InputError, match="more than one column named 'b'"):
        as_arrow(frame.rename(columns={"a": "b"}))


def test_a_remedy_in_the_source_is_told_as_an_argument(table: pa.Table) -> None:
    labels = [None, *table["label"].to_pylist()[1:]]
    faulty = table.set_column(table.column_names.index("label"), "label", pa.array(labels))
    with pytest.raises(InputError) as stopped:
        rowsieve.curate(faulty, label="label", operators=PLAIN)
    quarantine, leave_out = {"on_error": "quarantine"}, {"filter": [["label", "!=", None]]}
    told = f"In Python: curate(..., source={quarantine}) or curate(..., source={leave_out})."
    assert str(stopped.value).endswith(told)
    assert (
        len(rowsieve.curate(faulty, label="label", operators=PLAIN, source=leave_out).weights)
        == table.num_rows - 1
    )


def test_a_remedy_that_is_an_argument_of_its_own_is_told_as_that(table: pa.Table) -> None:
    with pytest.raises(InputError, match=r"In Python: curate\(\.\.\., label=\.\.\.\)\.$"):
        rowsieve.curate(table, label="lable")


@pytest.mark.parametrize(
    "operators", [{"cues": {"spurious": ["b"]}}, {"split": {"test": 0.1}}, ["cues", "groups"]]
)
def test_a_chain_with_a_gap_is_answered_with_the_whole_chain(operators: Any, table: pa.Table) -> None:
    """One missing operator after the other was named, and the first remedies led to another method."""
    with pytest.raises(InputError, match="`operators` names the whole chain") as stopped:
        rowsieve.curate(table, label="label", operators=operators)
    chain = ast.literal_eval(str(stopped.value).rpartition("operators=")[2].rstrip("."))
    assert list(chain) == ["probe", "cues", "groups", "weights", "split"]
    given = operators if isinstance(operators, dict) else {}
    assert all(chain[name] == params for name, params in given.items())
    assert (
        len(rowsieve.curate(table, label="label", truth="truth", operators=chain).weights) == table.num_rows
    )


def test_a_method_that_lacks_an_operator_gets_it(table: pa.Table) -> None:
    chain: dict[str, Any] = {"groups": {"min_samples": [5, 10]}, "weights": {}, "split": {}}
    with pytest.raises(InputError, match=r"'min_samples'.*'gradients': \{\}") as stopped:
        rowsieve.curate(table, label="label", operators=chain)
    told = ast.literal_eval(str(stopped.value).rpartition("operators=")[2].rstrip("."))
    assert rowsieve.curate(table, label="label", truth="truth", operators=told).recipe.operators == told


def typed_frames() -> dict[str, Any]:
    """Frames with the types that pandas and polars have beside numbers and texts."""
    rng, n = np.random.default_rng(0), 120
    label = rng.choice(["a", "b"], n)
    common: dict[str, Any] = {
        "tags": [["p", "q"][: k % 3] for k in range(n)],
        "geo": [{"lat": float(k), "place": {"city": "Oslo" if k % 2 else "Rome"}} for k in range(n)],
        "dec": [decimal.Decimal(k) / 4 for k in range(n)],
        "waited": [dt.timedelta(hours=k % 50) for k in range(n)],
    }
    values = rng.choice(["u", "v", "w"], n)
    start, zone = dt.datetime(2024, 1, 1), "Europe/Berlin"
    in_pandas = pd.DataFrame(common).assign(
        label=pd.Categorical(label),
        kind=pd.Categorical(values, ordered=True),
        at=pd.date_range(start, periods=n, freq="7h", tz=zone),
        gaps=pd.array([None if k % 7 == 0 else k % 9 for k in range(n)], dtype="Int64"),
        member=pd.array([None if k % 5 == 0 else bool(k % 2) for k in range(n)], dtype="boolean"),
    )
    at = polars.datetime_range(start, dt.datetime(2025, 1, 1), "7h", time_zone=zone, eager=True)[:n]
    in_polars = polars.DataFrame(common).with_columns(
        polars.Series("label", label),
        polars.Series("kind", values.tolist(), dtype=polars.Categorical),
        polars.Series("at", at),
        polars.Series("gaps", [None if k % 7 == 0 else k % 9 for k in range(n)]),
        polars.Series("member", [None if k % 5 == 0 else bool(k % 2) for k in range(n)]),
    )
    return {"pandas": in_pandas, "polars": in_polars}


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_every_type_of_a_frame_has_its_use(name: str) -> None:
    frame = typed_frames()[name]
    found = rowsieve.curate(frame, label="label", operators=PLAIN, source={"flatten": ["geo"]})
    kinds = {column["name"]: column["kind"] for column in found.manifest["source"]["columns"]}
    assert kinds == {
        "label": "unused",
        "tags": "tags",
        "geo.lat": "numeric",
        "geo.place.city": "categorical",
        "dec": "numeric",
        "waited": "numeric",
        "kind": "categorical",
        "at": "datetime",
        "gaps": "numeric",
        "member": "boolean",
    }
    assert len(found.weights) == 120
    plain = rowsieve.curate(frame, label="label", operators=PLAIN)
    (geo,) = (column for column in plain.manifest["source"]["columns"] if column["name"] == "geo")
    assert "source.flatten" in geo["note"]
