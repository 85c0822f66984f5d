"""Every source column is accounted for before a run, and faults of the label are named."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.plan.planner import make_plan
from engine.plan.preview import Preview, check_label, preview
from engine.plan.sample import draw_sample, sample_note
from engine.recipe.recipe import Recipe

N = 300
RNG = np.random.default_rng(0)
TABLE = pa.table(
    {
        "income": ["low", "high", "low"] * 100,
        "age": RNG.integers(17, 90, N),
        "pay": RNG.normal(size=N),
        "member": RNG.random(N) < 0.5,
        "image": [[0.5, 1.0]] * N,
        "race": RNG.choice(["a", "b"], N),
        "_key": np.arange(N),
        "note": ["x"] * N,
    }
)


def previewed(path: Path, **keys: Any) -> Preview:
    source = {"path": str(path), "label": "income", **keys.pop("source", {})}
    recipe = {"name": "r", "source": source, "output": {"path": str(path.parent / "out")}, **keys}
    return preview(make_plan(Recipe.parse(recipe)))


def written(folder: Path, table: pa.Table = TABLE, **settings: Any) -> Path:
    path = folder / "a.parquet"
    pq.write_table(table, path, **settings)
    return path


def kinds(found: Preview) -> dict[str, str]:
    return {column.name: column.kind for column in found.columns}


def test_every_column_has_a_use_or_a_reason(tmp_path: Path) -> None:
    found = previewed(written(tmp_path), source={"exclude": ["note"]}, truth={"group": "race"})
    assert list(kinds(found)) == TABLE.column_names
    expected = {"income": "label", "age": "numeric", "member": "boolean", "image": "vector", "race": "truth"}
    assert kinds(found).items() >= expected.items()
    assert kinds(found)["_key"] == kinds(found)["note"] == "excluded"
    about = {column.name: column.about for column in found.columns}
    assert about.pop("income") == ""  # that the split hashes it is no use of it
    assert all(about.values())
    assert found.note == ""
    assert found.label.counts == {"low": 200, "high": 100}


def test_named_features_leave_the_others_out_and_are_used(tmp_path: Path) -> None:
    found = previewed(written(tmp_path), source={"features": ["age", "pay"]})
    assert {name for name, kind in kinds(found).items() if kind == "numeric"} == {"age", "pay"}
    about = {column.name: column.about for column in found.columns}
    assert about["member"] == "source.features names others"
    assert about["age"].endswith(" to 89")


def test_json_has_the_same_columns(tmp_path: Path) -> None:
    value = json.loads(json.dumps(previewed(written(tmp_path)).to_json()))
    assert [column["name"] for column in value["columns"]] == TABLE.column_names
    assert value["seen"] == "all rows"
    assert value["label"]["counts"][0] == {"value": "low", "rows": 200}


def test_a_sample_is_spread_over_the_shards_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for part in range(10):
        table = TABLE.set_column(1, "age", pa.array(np.full(N, part)))
        pq.write_table(table, folder / f"{part}.parquet")
    recipe = Recipe.parse(
        {"name": "r", "source": {"path": str(folder), "label": "income"}, "output": {"path": "o"}}
    )
    plan = make_plan(recipe)
    sample = draw_sample(plan.source, plan.listing, n_rows=40, n_shards=4)
    assert np.unique(sample.rows["age"].to_numpy()).tolist() == [0, 3, 6, 9]
    assert (sample.rows.num_rows, sample.wide.num_rows, sample.is_whole) == (40, 64, False)
    note = sample_note(sample, plan.listing)
    assert note == "a sample, 40 of 3,000 rows, from 4 of 10 shards"
    assert draw_sample(plan.source, plan.listing).is_whole


def test_a_label_that_cannot_be_used_ends_the_check(tmp_path: Path) -> None:
    found = previewed(written(tmp_path), source={"label": "pay"})
    with pytest.raises(InputError, match=r"'pay' has 300 distinct values.*a quantity"):
        check_label(found)


def run(tmp_path: Path, *words: str, label: str = "income", more: str = "") -> Any:
    (tmp_path / "r.yaml").write_text(
        f"name: r\nsource: {{path: {tmp_path}/a.parquet, label: {label}{more}}}\n"
        f"output: {{path: {tmp_path}/out}}\n"
    )
    return CliRunner().invoke(app, [words[0], str(tmp_path / "r.yaml"), *words[1:]])


def test_validate_lists_columns_classes_and_warnings(tmp_path: Path) -> None:
    rare = TABLE.set_column(0, "income", pa.array([" low", " high", "low."] * 99 + ["x", None, "x"]))
    written(tmp_path, rare)
    done = run(tmp_path, "validate")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert "r.yaml: valid. 300 rows in 1 shard." in lines[0]
    for name in TABLE.column_names:
        assert sum(line.startswith(f"{name} ") for line in lines) == 1
    assert any(line.split() == ["'", "high'", "99", "33.1%"] for line in lines)
    assert "look like one class: ' low' (99 rows) and 'low.' (99 rows)" in done.output
    assert "1 of 300 rows (0.33%) have no label" in done.output
    assert "The class 'x' of the label 'income' has 2 of 299 rows" in done.output
    value = json.loads(run(tmp_path, "validate", "--json").output)
    assert [warning["kind"] for warning in value["warnings"]] == ["alike", "rare", "missing"]
    joined = run(tmp_path, "validate", more=", strip: true, label_map: {low.: low}")
    assert "look like" not in joined.output
    assert "low" in joined.output


def test_validate_refuses_a_label_of_one_class(tmp_path: Path) -> None:
    written(tmp_path)
    done = run(tmp_path, "validate", label="note")
    assert done.exit_code == 2
    assert "The label 'note' has one value, 'x'" in done.stderr


def test_plan_lists_the_columns_too(tmp_path: Path) -> None:
    written(tmp_path)
    done = run(tmp_path, "plan")
    assert "values, or why not" in done.output
    assert sum(line.startswith("age ") and "numeric" in line for line in done.output.splitlines()) == 1
    value = json.loads(run(tmp_path, "plan", "--json").output)
    assert [column["name"] for column in value["source"]["columns"]] == TABLE.column_names


def test_a_source_without_a_usable_column_is_refused(tmp_path: Path) -> None:
    texts = pa.array([f"a sentence of many words, number {row} of them all" for row in range(N)])
    written(tmp_path, pa.table({"income": TABLE["income"], "id": np.arange(N), "text": texts}))
    done = run(tmp_path, "validate")
    assert done.exit_code == 2
    assert "No column of the source can be used" in done.stderr
    assert "'id' (identifier" in done.stderr
    assert "'text' (text without a model" in done.stderr


def test_the_manifest_and_the_report_account_for_every_column(tmp_path: Path) -> None:
    written(tmp_path)
    more = ", exclude: [pay], columns: [age, pay, member, race, _key, image]"
    assert (
        run(
            tmp_path, "run", "--set", "run.executor=local", "--set", "tracking.enabled=false", more=more
        ).exit_code
        == 0
    )
    version = (tmp_path / "out/CURRENT").read_text().strip()
    manifest = json.loads((tmp_path / f"out/versions/{version}/manifest.json").read_text())
    columns = {column["name"]: column for column in manifest["source"]["columns"]}
    assert list(columns) == TABLE.column_names
    kinds = {name: column["kind"] for name, column in columns.items() if column["reason"] is None}
    assert kinds == {"age": "numeric", "member": "boolean", "image": "vector", "race": "categorical"}
    reasons = {name: column["reason"] for name, column in columns.items() if column["reason"]}
    assert reasons == {"income": "label", "pay": "excluded", "_key": "excluded", "note": "excluded"}
    report = (tmp_path / f"out/reports/{version}.html").read_text()
    section = report.partition("<summary>Source columns</summary>")[2].partition("</details>")[0]
    assert section.count("<tr>") == 1 + len(columns)


def test_names_that_occur_nowhere_have_the_nearest_one(tmp_path: Path) -> None:
    path = written(tmp_path)
    given = {"label_map": {"lwo": "low", "high": "top"}}
    assert [f.text for f in previewed(path, source=given).findings] == [
        "source.label_map: no row has the label 'lwo'. Did you mean 'low'?"
    ]
    filtered = {**given, "filter": [["age", ">", 0]]}
    assert [finding.kind for finding in previewed(path, source=filtered).findings] == ["unmapped"]
    assert previewed(path, source={"label_map": {"high": "top"}}).findings == ()
    plain = {"probe": {}, "cues": {}, "groups": {"method": "cues"}, "weights": {}, "split": {}}
    with pytest.raises(InputError, match=r"not a feature of this recipe\. Did you mean 'member'"):
        previewed(path, operators={**plain, "encode": {"columns": {"memebr": "categorical"}}})
    with pytest.raises(InputError, match=r"got 'categorcal'\. Did you mean 'categorical'"):
        previewed(path, operators={**plain, "encode": {"columns": {"race": "categorcal"}}})


def test_line_ends_in_values_do_not_break_the_list(tmp_path: Path) -> None:
    from engine.cli.columns import column_lines

    table = TABLE.set_column(7, "note", pa.array(["a\nb", "c\r\nd", "e"] * 100))
    lines = list(column_lines(previewed(written(tmp_path, table)).columns))
    assert len(lines) == len(TABLE.column_names) + 2
    assert "a b 33%, c d 33%" in lines[8]


def test_texts_that_are_read_in_part_are_named(tmp_path: Path) -> None:
    short, long = "a plain note of seven short words", "many words of a review " * 40
    texts = [long if row % 4 == 0 else short for row in range(N)]
    path = written(
        tmp_path, TABLE.append_column("review", pa.array([f"{row} {t}" for row, t in enumerate(texts)]))
    )
    encode: dict[str, Any] = {"text": {"model": "minilm"}}
    chain = {
        "encode": encode,
        "probe": {},
        "cues": {},
        "groups": {"method": "cues"},
        "weights": {},
        "split": {},
    }
    found = dict(previewed(path, operators=chain).warnings())
    assert "column 'review': about 25% of the texts are read in part" in found["cut"]
    assert "the first 128 word pieces, some 96 words" in found["cut"]
    encode["text"]["max_tokens"] = 512
    assert "cut" not in dict(previewed(path, operators=chain).warnings())


def test_the_plan_says_how_long_the_network_takes_for_free_text(tmp_path: Path) -> None:
    """It said "next to no work" of a run in which the network took nearly all of the time."""
    texts = [f"{row} a plain note of nine or ten short words" for row in range(N)]
    source = {
        "path": str(written(tmp_path, TABLE.append_column("review", pa.array(texts)))),
        "label": "income",
    }
    recipe: dict[str, Any] = {"name": "r", "source": source, "output": {"path": str(tmp_path / "out")}}
    chain = {"probe": {}, "groups": {"method": "none"}, "weights": {}, "split": {}}
    said = []
    for text in ({"model": "minilm"}, {}):
        recipe["operators"] = {"encode": {"text": text}, **chain}
        (tmp_path / "r.yaml").write_text(json.dumps(recipe), "utf-8")
        said.append(CliRunner().invoke(app, ["plan", str(tmp_path / "r.yaml")]).stdout)
    assert "; up to 6 s more for the network that reads free text" in said[0]
    assert "network that reads" not in said[1]


@pytest.mark.parametrize("key", ["spurious", "legitimate"])
def test_names_of_cues_that_are_no_features_are_told_before_the_run(tmp_path: Path, key: str) -> None:
    serials = pa.array([f"S{row:06d}" for row in range(N)])
    path = written(tmp_path, TABLE.append_column("serial", serials))
    more = {"encode": {}, "probe": {}, "groups": {"method": "cues"}, "weights": {}, "split": {}}
    found = dict(previewed(path, operators={**more, "cues": {key: ["age", "serial"]}}).warnings())
    assert f"operators.cues.{key} names 'serial', which is no feature (identifier" in found["fault"]
    assert "the run would stop" in found["fault"]
    assert "fault" not in dict(previewed(path, operators={**more, "cues": {key: ["age"]}}).warnings())
    words = {"spurious": [{"column": "serial", "words": ["S000001"]}]}
    assert "fault" not in dict(previewed(path, operators={**more, "cues": words}).warnings())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("race = c", "no row that was looked at has this value. Its values are: 'a', 'b'."),
        ("town = Osslo", "no row that was looked at has this value. The nearest one is 'Oslo'."),
        (
            "race > 3",
            "the values of 'race' are texts, which no number is compared with. Its values are: 'a',",
        ),
        ("age > 200", "this divides no rows that were looked at: its values go from "),
        ("age <= -1 or is missing", "this divides no rows that were looked at: its values go from "),
        ("pay = 3", "'pay' has numbers, which are divided by a cut: pay > "),
    ],
)
def test_slices_of_cues_that_divide_no_rows_are_told_before_the_run(
    tmp_path: Path, name: str, said: str
) -> None:
    path = written(tmp_path, TABLE.append_column("town", pa.array(["Oslo", "Rome", "Lima"] * 100)))
    more = {"encode": {}, "probe": {}, "groups": {"method": "cues"}, "weights": {}, "split": {}}
    found = dict(previewed(path, operators={**more, "cues": {"spurious": [name]}}).warnings())
    assert f"operators.cues.spurious names {name!r}, but {said}" in found["fault"]


def test_a_value_that_only_a_sample_lacks_is_a_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.plan.preview.draw_sample", partial(draw_sample, n_rows=100))
    more = {"encode": {}, "probe": {}, "groups": {"method": "cues"}, "weights": {}, "split": {}}
    operators = {**more, "cues": {"spurious": ["race = c"]}}
    found = dict(previewed(written(tmp_path), operators=operators).warnings())
    assert "fault" not in found
    assert "names 'race = c', but no row that was looked at has this value" in found["values"]


def test_slices_that_divide_rows_are_no_fault(tmp_path: Path) -> None:
    names = ["race = a", "age > 40", "pay", "member", "image[0]"]
    more = {"encode": {}, "probe": {}, "groups": {"method": "cues"}, "weights": {}, "split": {}}
    found = previewed(written(tmp_path), operators={**more, "cues": {"spurious": names}})
    assert "fault" not in dict(found.warnings())


def test_doubts_about_the_use_of_a_column_are_said_by_every_command(tmp_path: Path) -> None:
    words = [str(k * 37 % 199) for k in range(N)]
    table = TABLE.append_column("score", pa.array([">100", *words[1:]]))
    path = written(tmp_path, table.append_column("store_id", pa.array(np.arange(N) % 7)))
    texts = [text for kind, text in previewed(path).warnings() if kind == "column"]
    assert [text.split(": ")[0] for text in texts] == ["column 'score'", "column 'store_id'"]
    assert "1 of 300 values is no number and counts as missing: '>100' (1)" in texts[0]
    assert "its name says that it identifies something (7 distinct whole numbers in 300 rows)" in texts[1]
    recipe = str(tmp_path / "r.yaml")
    commands = (
        ["init", str(path), "--label", "income", "-o", recipe],
        ["plan", recipe],
        ["validate", recipe],
    )
    for command in commands:
        found = CliRunner().invoke(app, command)
        assert found.exit_code == 0, found.output
        assert all(f"warning: {text}" in found.output for text in texts)


def test_a_plan_says_under_its_shards_how_many_more_there_are(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=10)
    done = run(tmp_path, "plan", more=", shard_bytes: 1")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    place = lines.index("... and 10 more (--json shows all)")
    assert "19" in [line.split()[0] for line in lines[place - 3 : place]]  # a long path takes two lines
    assert lines[place + 1].startswith("  runs ")


def test_columns_whose_names_look_the_same_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, TABLE.append_column("Age ", TABLE["pay"]))
    (said,) = previewed(path).names
    assert said == (
        "the names of the columns 'age', 'Age ' differ by blanks or the case of letters alone. If they hold "
        "the same, leave one out with source.exclude: ['Age ']; else give it another name: "
        "{source: {rename: {'Age ': Age_2}}}."
    )
    assert previewed(path, source={"exclude": ["Age "]}).names == ()
    assert previewed(path, source={"rename": {"Age ": "Age_2"}}).names == ()


def test_the_decimal_point_is_doubted_behind_a_rename_as_well(tmp_path: Path) -> None:
    """A source with renamed columns or a filter was not looked at."""
    lines = [f"{k % 3};{k % 7},{k % 10}" for k in range(N)]
    (tmp_path / "a.csv").write_text("income;v\n" + "\n".join(lines) + "\n")
    source = {"options": {"delimiter": ";"}, "text_columns": []}
    keys = {"source": {**source, "rename": {"v": "w"}}}
    assert len(previewed(tmp_path / "a.csv", **keys).marks) == 1
