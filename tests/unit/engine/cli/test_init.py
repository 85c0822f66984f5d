"""``rowsieve init``: a commented recipe for ordinary tables, which validates and runs unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from engine.plan.first_recipe import recipe_name
from engine.plan.recipe_text import OPERATORS
from engine.recipe.recipe import STANDARD_CHAIN
from tests.unit import formats

N = 400
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, N)
PEOPLE = {
    "age": np.where(Y == 1, RNG.normal(50, 8, N), RNG.normal(38, 8, N)).round().astype(int),
    "pay": RNG.normal(size=N).round(3) + Y,
    "job": RNG.choice(["cook", "clerk", "smith"], N),
    "later": Y * 3 + 1,
    "income": np.array(["low", "high"])[Y],
}


def init(*words: Any) -> Any:
    return CliRunner().invoke(app, ["init", *map(str, words)])


def command(*words: Any) -> Any:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def people_csv(path: Path, between: str = ", ") -> Path:
    names = list(PEOPLE)
    rows = [[str(PEOPLE[name][row]) for name in names] for row in range(N)]
    rows[3][0] = rows[7][2] = "?"
    path.write_text("\n".join([",".join(names), *(between.join(row) for row in rows)]) + "\n")
    return path


def test_the_recipe_of_a_table_validates_and_runs_unchanged(tmp_path: Path) -> None:
    people_csv(tmp_path / "people.csv")
    done = init("people.csv", "--label", "income", "-o", "people.yaml")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "people.yaml").read_text()
    recipe = yaml.safe_load(text)
    assert recipe["source"] == {
        "path": "people.csv",
        "label": "income",
        "strip": True,
        "missing": ["?"],
        "exclude": ["later"],
    }
    assert "later alone is right on 100.0% of unseen rows" in done.stderr
    for name in PEOPLE:
        assert sum(line.startswith(f"#   {name} ") for line in text.splitlines()) == 1
    lines = [line for line in text.splitlines() if line.strip() and line[-1] != ":" and line[:1] != "#"]
    assert all("#" in line for line in lines if not line.startswith("name:"))  # one comment for each choice
    command("validate", "people.yaml")
    quick = [word for key in ("report", "tracking") for word in ("--set", f"{key}.enabled=false")]
    command("run", "people.yaml", "--set", "run.executor=local", *quick)
    assert (tmp_path / "curated/people/CURRENT").exists()


def test_the_label_is_never_guessed(tmp_path: Path) -> None:
    people_csv(tmp_path / "people.csv")
    done = init("people.csv", "-o", "people.yaml")
    assert done.exit_code == 2
    assert not (tmp_path / "people.yaml").exists()
    assert done.stdout == ""
    lines = {line.split()[0]: line for line in done.stderr.splitlines() if line.startswith("  ")}
    assert set(lines) == {"job", "later", "income"}
    counts = {name: int((value == Y).sum()) for value, name in enumerate(("low", "high"))}
    for name, rows in counts.items():
        assert f"{name} ({rows})" in lines["income"]


def test_what_a_run_refuses_is_not_offered_as_a_label(tmp_path: Path) -> None:
    rows = "".join(f"n{row % 47},{'yes' if row % 3 else 'no'}\n" for row in range(300))
    (tmp_path / "m.csv").write_text(f"name,y\n{rows}")
    lines = [line.split()[0] for line in init("m.csv").stderr.splitlines() if line.startswith("  ")]
    assert lines == ["y"]
    assert "47 distinct values" in init("m.csv", "--label", "name").stderr


def test_a_wrong_label_names_the_nearest(tmp_path: Path) -> None:
    people_csv(tmp_path / "people.csv")
    done = init("people.csv", "--label", "incom")
    assert done.exit_code == 2
    assert "--label incom: the source has no such column. Did you mean 'income'?" in done.stderr
    done = init("people.csv", "--label", "pay")
    assert done.exit_code == 2
    assert "a quantity" in done.stderr


def test_a_label_that_is_a_value_of_the_first_row_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "colours.csv").write_text("red,blue,y\nblue,red,no\nred,blue,yes\n")
    done = init("colours.csv", "--label", "red")
    assert done.exit_code == 2
    assert "The columns are: column_1, column_2, column_3." in done.stderr
    assert "write a recipe with source: {label: red, options: {header: true}}." in done.stderr


def test_a_file_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    people_csv(tmp_path / "people.csv")
    (tmp_path / "r.yaml").write_text("mine")
    done = init("people.csv", "--label", "income", "-o", "r.yaml")
    assert done.exit_code == 2
    assert "r.yaml exists" in done.stderr
    assert init("people.csv", "--label", "income", "-o", "r.yaml", "--force").exit_code == 0
    assert (tmp_path / "r.yaml").read_text() != "mine"


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_folder_and_a_place_below_a_file_take_no_recipe(force: tuple[str, ...], tmp_path: Path) -> None:
    people_csv(tmp_path / "people.csv")
    (tmp_path / "folder").mkdir()
    done = init("people.csv", "--label", "income", "-o", "folder", *force)
    assert done.exit_code == 2
    assert "-o folder: this is a folder. Name the file to write, such as folder/recipe.yaml." in done.stderr
    done = init("people.csv", "--label", "income", "-o", "people.csv/r.yaml", *force)
    assert done.exit_code == 2
    assert "people.csv is a file, not a folder" in done.stderr


def test_errors_about_the_path_name_no_key_of_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("a,b\n")
    for path in ("nosuch.csv", "empty.csv"):
        done = init(path, "--label", "a")
        assert done.exit_code == 2
        assert "source.path" not in done.stderr


def drafted(path: str, label: str, *words: str) -> dict[str, Any]:
    done = init(path, "--label", label, *words)
    assert done.exit_code == 0, done.output
    Path("r.yaml").write_text(done.stdout)
    command("validate", "r.yaml")
    found: dict[str, Any] = yaml.safe_load(done.stdout)["source"]
    return found


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "ipc_file", "hive", "huggingface", "csv_bz2"])
def test_every_format_folder_and_uri(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    formats.WRITERS[kind](folder, "part", formats.rows(300))
    assert drafted("rows", "y")["label"] == "y"
    assert drafted(f"file://{folder}", "y")["path"] == f"file://{folder}"


def test_a_glob_and_a_sample_of_shards(tmp_path: Path) -> None:
    for part in range(12):
        pq.write_table(pa.table(PEOPLE), tmp_path / f"part-{part}.parquet")
    done = init("part-*.parquet", "--label", "income", "--shards", "3", "--output", "elsewhere")
    value = yaml.safe_load(done.stdout)
    assert (value["name"], value["output"]) == ("part", {"path": "elsewhere"})
    assert "# parquet, 4,800 rows" in done.stdout


def test_csv_of_another_land_without_header_and_with_spellings(tmp_path: Path) -> None:
    people = [
        f"{row % 50},5;{RNG.integers(0, 99)};{'Ja' if row % 3 else ('nein', 'Nein')[row % 2]}"
        for row in range(N)
    ]
    (tmp_path / "a.csv").write_text("\n".join(people))
    source = drafted("a.csv", "column_3")
    assert source["options"] == {"delimiter": ";", "header": False, "decimal": ","}
    assert source["label_map"] == {"Nein": "nein"}
    joined = "warning: the recipe joins labels that look like one class; take out those that are not: "
    assert f"{joined}source.label_map has 'Nein' to 'nein'" in init("a.csv", "--label", "column_3").stderr


def test_thousands_are_numbers_and_the_other_reading_is_said(tmp_path: Path) -> None:
    values = RNG.integers(1000, 40_000, N).tolist()
    text = "\n".join(["k,n,y", *(f'{row % 5},"{n:,}",{row % 2}' for row, n in enumerate(values))])
    (tmp_path / "a.csv").write_text(text)
    assert drafted("a.csv", "y")["options"] == {"thousands": ","}
    written = (tmp_path / "r.yaml").read_text()
    assert "decimal: ',' in place of thousands" in " ".join(written.replace("#", " ").split())
    assert f"{min(values):,} to {max(values):,}" in command("validate", "r.yaml").output


def test_amounts_get_their_kind_under_the_name_of_the_recipe(tmp_path: Path) -> None:
    """A column of amounts was unused as an identifier; its header may have spaces around it."""
    rows = [
        f'"US$ {1000 + 37 * row:,}.50",{row % 40}%,{row % 7}{" kg" if row % 2 else " lb"},{row % 2} '
        for row in range(N)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["Deal value ,share,weight,y", *rows]))
    done = init("a.csv", "--label", "y")
    recipe = yaml.safe_load(done.stdout)
    assert recipe["source"]["strip"]
    assert recipe["operators"]["encode"] == {"columns": {"Deal value": "amount", "share": "amount"}}
    written = " ".join(done.stdout.replace("#", " ").split())
    assert "`amount`: numbers that are written with a currency, a unit or thousands marks" in written
    assert "Deal value numeric amounts in 'US$' with '.' before decimals" in written
    Path("r.yaml").write_text(done.stdout)
    assert "amounts in 'US$'" in command("validate", "r.yaml").output


def test_dates_with_names_of_months_and_durations_get_their_kind(tmp_path: Path) -> None:
    """They were used as categories of hundreds of values, or not at all."""
    rows = [
        {
            "us": f"Apr {row % 30 + 1}, {2000 + row % 20}",
            "uk": f"{row % 30 + 1:02d} Apr {2000 + row % 20}",
            "run": f"{row % 9 + 1}h {row % 60}m",
            "clock": f"{row % 30:02d}:{row % 60:02d}:05",
            "y": row % 2,
        }
        for row in range(N)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    done = init("a.parquet", "--label", "y")
    assert yaml.safe_load(done.stdout)["operators"]["encode"]["columns"] == {
        "us": {"format": "%b %d, %Y"},
        "uk": {"format": "%d %b %Y"},
        "run": "duration",
        "clock": "duration",
    }
    written = " ".join(done.stdout.replace("#", " ").split())
    assert "`format`: how dates are written; `duration`: lengths of time, as seconds; remove" in written
    Path("r.yaml").write_text(done.stdout)
    said = " ".join(command("validate", "r.yaml").output.split())
    assert "us text datetime" in said
    assert "uk text datetime" in said
    assert said.count("durations in seconds") == 2


def test_no_other_decimal_point_is_asked_for_where_a_column_is_one_of_amounts(tmp_path: Path) -> None:
    comma = [f'{row},"{row},{row % 10}5",{row % 2}' for row in range(N)]
    (tmp_path / "a.csv").write_text("\n".join(["x,size,y", *comma]))
    recipe = yaml.safe_load(init("a.csv", "--label", "y").stdout)
    del recipe["source"]["options"]
    recipe["operators"]["encode"] = {"columns": {"size": "amount"}}
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    said = " ".join(command("validate", "r.yaml").output.split())
    assert "amounts with ',' before decimals" in said
    assert "source.options.decimal" not in said


def test_columns_of_one_name_and_rows_without_label(tmp_path: Path) -> None:
    rows = [f"{row},{row % 7},{'' if row % 50 == 0 else row % 2}" for row in range(N)]
    (tmp_path / "a.csv").write_text("\n".join(["x,x,y", *rows]))
    source = drafted("a.csv", "y")
    assert source["options"] == {"duplicate_names": "number"}
    text = " ".join(Path("r.yaml").read_text("utf-8").replace("#", " ").split())
    assert "Warning: several columns have one name: by source.options.duplicate_names the recipe" in text
    assert source["filter"] == [["y", "!=", None]]


def test_words_among_numbers_of_json_and_late_in_csv(tmp_path: Path) -> None:
    rows = [
        f'{{"x": {row % 37 if row != 5 else chr(34) + "?" + chr(34)}, "y": {row % 2}}}' for row in range(N)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    assert drafted("a.jsonl", "y")["missing"] == ["?"]


def test_columns_that_no_feature_can_hold_do_not_set_rows_aside(tmp_path: Path) -> None:
    some = np.where(np.arange(N) % 3 > 0, 1e300, PEOPLE["pay"])
    few = np.where(np.arange(N) == 7, np.inf, PEOPLE["pay"])
    keys = [bytes([row % 250, 1, 2, 3]) for row in range(N)]
    none = np.full(N, np.inf)
    table = pa.table({"some": some, "few": few, "none": none, "hash": keys, "y": PEOPLE["income"]})
    pq.write_table(table, tmp_path / "a.parquet")
    source = drafted("a.parquet", "y")
    assert source["exclude"] == ["some"]
    assert (source["on_error"], source["max_error_rate"]) == ("quarantine", 0.01)
    text = Path("r.yaml").read_text()
    assert "- some" in text
    assert "66.5% of its values are infinite, out of range" in text
    assert "none  unused" in text
    assert "embed" not in yaml.safe_load(text)["operators"]


@pytest.mark.parametrize("mark", ["-", "--", ".", "none", "?"])
def test_lone_marks_among_numbers_are_missing(mark: str, tmp_path: Path) -> None:
    rows = [f"{mark if row % 20 == 0 else row % 37},{row % 2}" for row in range(N)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *rows]))
    assert drafted("a.csv", "y")["missing"] == [mark]


def test_codes_with_leading_zeros_stay_text(tmp_path: Path) -> None:
    rows = [f"{(row % 7) * 1501:05},{row % 37},{row % 2}" for row in range(N)]
    (tmp_path / "a.csv").write_text("\n".join(["zip,x,y", *rows]))
    assert drafted("a.csv", "y")["text_columns"] == ["zip"]
    assert "leading zeros of '00000' in zip" in Path("r.yaml").read_text()
    assert "01501" in command("validate", "r.yaml").output


def test_whole_numbers_in_one_file_and_fractions_in_the_next(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for part, end in enumerate(["", ".5"]):
        rows = [f"{row % 37}{end},{row % 2}" for row in range(N)]
        (tmp_path / "d" / f"{part}.csv").write_text("\n".join(["x,y", *rows]))
    drafted("d", "y")
    assert "0 to 36.5" in command("validate", "r.yaml").output


def test_a_label_without_values_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *(f"{row % 37}," for row in range(N))]))
    done = init("a.csv", "--label", "y")
    assert done.exit_code == 2
    assert "The label 'y' has no value" in done.stderr


def test_a_word_that_may_be_a_class_is_not_silently_a_missing_label(tmp_path: Path) -> None:
    lines = [f"{i % 17},{('EU', 'AS', 'NA')[i % 3]}" for i in range(300)]
    (tmp_path / "my cities.csv").write_text("\n".join(["size,continent", *lines]) + "\n")
    done = init("my cities.csv", "--label", "continent", "-o", "my recipe.yaml")
    warning = "33.3% of the rows that were looked at have no label, since 'NA' stands for a missing value"
    assert warning in done.stderr
    text = (tmp_path / "my recipe.yaml").read_text()
    assert "# Warning: 33.3% of the rows" in text
    assert "`rowsieve init 'my cities.csv' --label continent`" in text
    assert "#     rowsieve validate 'my recipe.yaml'" in text


def test_rows_without_a_label_that_the_recipe_leaves_out_are_told(tmp_path: Path) -> None:
    lines = [f"{i % 17},{('yes', 'no', '')[min(i % 40, 2) if i % 40 > 37 else i % 2]}" for i in range(400)]
    (tmp_path / "a.csv").write_text("\n".join(["size,y", *lines]) + "\n")
    said = init("a.csv", "--label", "y", "-o", "r.yaml").stderr
    assert "20 rows without a label, among those that were looked at: the recipe leaves such rows out" in said


def test_structs_are_flattened(tmp_path: Path) -> None:
    person = pa.array([{"age": int(age), "id": f"p{row}"} for row, age in enumerate(PEOPLE["age"])])
    pq.write_table(pa.table({"person": person, "y": PEOPLE["income"]}), tmp_path / "a.parquet")
    assert drafted("a.parquet", "y")["flatten"] == ["person"]


def test_the_operators_are_the_standard_chain() -> None:
    written = {name: params for name, params, _ in OPERATORS}
    assert {**written, "split": {}} == STANDARD_CHAIN


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("data/adult.csv.gz", "adult"),
        ("data/churn/*.parquet", "churn"),
        ("s3://bucket/a b/", "a-b"),
        ("2024/*", "dataset"),
        ("part-*.parquet", "part"),
        ("postgresql://h/db", "db"),
        ("nasty name ü.parquet", "nasty-name"),
        (".hidden.csv", "hidden"),
    ],
)
def test_names_come_from_the_path(path: str, name: str) -> None:
    assert recipe_name(path) == name


@pytest.mark.parametrize(
    "name",
    ["a\nname: evil", "a\r- b", "a\x85", "a\u2028operators: {}", "\x7f", "- a: b # c", "\x1b[31m'\"", "null"],
)
def test_names_and_values_cannot_change_the_meaning_of_the_recipe(tmp_path: Path, name: str) -> None:
    late = np.array(["x", f"{name}."])[Y]
    columns = {"pay": PEOPLE["pay"], name: Y * 3.0, f"{name}?": late, "label": late}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    done = init("t.parquet", "--label", "label", "-o", tmp_path / "t.yaml")
    assert done.exit_code == 0, done.output
    assert yaml.safe_load((tmp_path / "t.yaml").read_text()) == {
        "name": "t",
        "seed": 0,
        "source": {"path": "t.parquet", "label": "label", "exclude": [name, f"{name}?"]},
        "operators": {key: params for key, params, _ in OPERATORS},
        "output": {"path": "curated/t"},
    }
    assert all(line.isprintable() for line in (tmp_path / "t.yaml").read_text().split("\n"))
    done = init("t.parquet", "--label", f"{name}?", "-o", tmp_path / f"{name.replace('/', '')}.yaml")
    assert done.exit_code == 0, done.output
    text = (tmp_path / f"{name}.yaml").read_text()
    assert yaml.safe_load(text)["source"]["label"] == f"{name}?"


@pytest.mark.parametrize(("encoding", "encoding_name"), [("cp1252", "cp1252"), ("utf-16", "utf-16")])
def test_tables_in_other_encodings_run_unchanged(tmp_path: Path, encoding: str, encoding_name: str) -> None:
    text = people_csv(tmp_path / "p.csv").read_text().replace("smith", "Köln").replace("job", "Größe")
    (tmp_path / "p.csv").write_text(text, encoding)
    assert init("p.csv", "--label", "income", "-o", "p.yaml").exit_code == 0
    recipe = (tmp_path / "p.yaml").read_text("utf-8")
    assert f"  encoding: {encoding_name} " in recipe
    assert "not UTF-8; a guess, in which it reads 'Größe'" in recipe or encoding == "utf-16"
    assert "Größe" in command("validate", "p.yaml").output


def test_a_column_of_numbers_with_other_texts_is_read_as_text(tmp_path: Path) -> None:
    """Such as postcodes, of which a few have an extension; also where it stands beyond the first cells."""
    rows = [f"{9000 + i % 37},{i % 5},{'ab'[i % 2]}" for i in range(3000)]
    rows[7], rows[2900] = "9115-4820,1,b", "9115,1-2,a"
    (tmp_path / "p.csv").write_text("\n".join(['it\'s "zip",size,y', *rows, ""]).replace('"', ""))
    done = init("p.csv", "--label", "y", "-o", "p.yaml")
    assert done.exit_code == 0, done.output
    recipe = (tmp_path / "p.yaml").read_text()
    assert yaml.safe_load(recipe)["source"]["text_columns"] == ["it's zip", "size"]
    assert "read as text: it's zip holds '9115-4820' among other values; size holds '1-2'" in " ".join(
        recipe.replace("#", " ").split()
    )
    assert "it's zip  text" in " ".join(command("validate", "p.yaml").output.split("\n"))


def test_columns_with_rows_without_a_value_are_offered_as_labels(tmp_path: Path) -> None:
    """Such as labels of a part of the rows; whole numbers with gaps are stored as fractions."""
    searched, vote = ["no", "no", "yes", "", "no"], ["0.0", "1.0", "", "1.0"]
    rows = "".join(f"{searched[row % 5]},{vote[row % 4]},{row / 7:.3f},{row % 3 / 2}\n" for row in range(300))
    (tmp_path / "m.csv").write_text(f"searched,vote,size,half\n{rows}")
    lines = [line for line in init("m.csv").stderr.splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in lines] == ["searched", "vote"]
    assert "none in 60 rows" in lines[0]
    assert "none in 75 rows" in lines[1]
    assert drafted("m.csv", "vote")["filter"] == [["vote", "!=", None]]


def test_a_row_with_too_few_cells_is_named_by_its_line(tmp_path: Path) -> None:
    """A carriage return that is not in quotes ends a row, as pandas writes those of social media posts."""
    rows = "".join(f"a{row} b,{'pn'[row % 2]}\n" for row in range(300))
    (tmp_path / "t.csv").write_bytes(f"text,y\n{rows}not\rquoted,p\n{rows}".encode())
    done = init("t.csv", "--label", "y")
    assert done.exit_code == 2
    assert "t.csv, line 302: 1 field, but the header names 2 columns" in done.stderr
    assert (
        "in double quotes. A carriage return (\\r) without a line feed, which editors hardly" in done.stderr
    )
    (tmp_path / "t.csv").write_bytes(f"y,text\n{rows}p,not\rquoted\n{rows}".encode())
    assert "line 303: 1 field, but" in (after := init("t.csv", "--label", "y").stderr)
    assert "carriage return" in after
    (tmp_path / "t.csv").write_bytes(f"text,y\n{rows}not\n{rows}".encode())
    assert "carriage return" not in init("t.csv", "--label", "y").stderr


def test_free_text_that_no_network_reads_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    people_csv(tmp_path / "people.csv")
    lines = (tmp_path / "people.csv").read_text().splitlines()
    words = RNG.choice(["slow", "polite", "early", "broken", "again", "parcel", "letter"], (N, 9))
    texts = ["note", *map(" ".join, words)]
    (tmp_path / "people.csv").write_text("\n".join(map(", ".join, zip(lines, texts, strict=True))) + "\n")
    monkeypatch.setattr("engine.plan.first_recipe.missing_packages", lambda model: ["torch"])
    done = init("people.csv", "--label", "income", "-o", "people.yaml")
    assert done.exit_code == 0, done.output
    assert (
        "warning: note is not used: free text needs a network: pip install 'rowsieve[embed]'" in done.stderr
    )


def test_a_missing_label_that_no_drawn_row_has_is_left_out_too(tmp_path: Path) -> None:
    """All labels had been counted, and the recipe said so, but its first run ended at that row."""
    n = 160_000
    x = pa.array(np.arange(n) % 1000 / 8)
    y = pa.array([None if row == n // 2 else "pq"[row % 2] for row in range(n)])
    pq.write_table(pa.table({"x": x, "y": y}), tmp_path / "a.parquet")
    done = init("a.parquet", "--label", "y", "-o", "r.yaml")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "r.yaml").read_text()
    assert yaml.safe_load(text)["source"]["filter"] == [["y", "!=", None]]
    assert "1 row without a label" in " ".join(text.split())


@pytest.mark.parametrize("path", [".", "../{name}", "{whole}", "./"])
def test_the_folder_of_the_data_may_be_the_current_one(path: str, tmp_path: Path) -> None:
    """The default output lay among the data, and the error named a key of a recipe that was not there."""
    people_csv(tmp_path / "people.csv")
    done = init(path.format(name=tmp_path.name, whole=tmp_path), "--label", "income")
    assert done.exit_code == 0, done.output
    output = yaml.safe_load(done.stdout)["output"]["path"]
    assert output.startswith("../curated/")
