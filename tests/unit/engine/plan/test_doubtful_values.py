"""Numbers that are read as text, and codes that are read as missing values, are said with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.plan.doubtful_values import codes_read_as_missing
from engine.plan.first_recipe import Draft, draft
from engine.plan.planner import make_plan
from engine.plan.preview import preview
from engine.recipe.recipe import Recipe
from operators.encode.summary import summarise

N = 300


def drafted(folder: Path, **columns: list[Any]) -> Draft:
    """Write columns of N values beside a label as CSV, and draft a recipe."""
    rows = zip(*columns.values(), ("yes" if k % 3 else "no" for k in range(N)), strict=True)
    lines = [";".join([*columns, "label"]), *(";".join(map(str, row)) for row in rows)]
    (folder / "a.csv").write_text("\n".join(lines) + "\n")
    return draft(str(folder / "a.csv"), "label", output=str(folder / "out"))


def test_words_among_numbers_are_said_to_make_categories_of_them(tmp_path: Path) -> None:
    score = ["n/k" if k % 7 == 0 else 10 + k % 90 / 4 for k in range(N)]
    found = drafted(tmp_path, score=score, x=[k % 11 for k in range(N)])
    assert [*found.preview.numbers] == [
        "column 'score': all values but 'n/k' (43 rows, 14.3%) are numbers, and each of them is a category. "
        "If that stands for a missing value, set source.missing: [n/k], and the column is numeric; if it is "
        "a category, say so by operators.encode.columns: {score: categorical}."
    ]
    source = {"path": str(tmp_path / "a.csv"), "label": "label"}
    source |= {key: choice.value for key, choice in found.source.items()}
    recipe: dict[str, Any] = {"name": "r", "source": source, "output": {"path": str(tmp_path / "out")}}
    remedied = preview(make_plan(Recipe.parse(recipe | {"source": source | {"missing": ["n/k"]}})))
    assert [column.kind for column in remedied.columns] == ["numeric", "numeric", "label"]
    assert remedied.numbers == ()
    kind = Recipe.model_fields["operators"].get_default(call_default_factory=True)
    kind |= {"encode": {"columns": {"score": "categorical"}}}
    assert preview(make_plan(Recipe.parse(recipe | {"operators": kind}))).numbers == ()


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([f"{50 + k % 60 / 4} kg" for k in range(N)], "kg' are text, and used as categories. Write `c: amo"),
        ([f"({k % 40})" if k % 2 else f"{k % 40}" for k in range(N)], "amounts such as '(1)' are text"),
        ([f"€ {k}.{k % 10}0" for k in range(N)], "are text, so that it is not used. Write `c: amount` under"),
        ([f"CHF {k}'{k % 10}00" for k in range(1, N + 1)], 'amounts such as "CHF 1\'100" are text'),
        ([f"{k % 40}%" for k in range(N)], "amounts such as '0%' are text, and used as categories"),
        ([f"{k} {'kg' if k % 3 else 'lb'}" for k in range(N)], "several units, 'kg' (200), 'lb' (100), are"),
        ([("low", "mid", k % 30)[k % 3] for k in range(N)], ""),
        ([f"{k % 40}{'ABC'[k % 3]}" for k in range(N)], ""),
        ([f"town {k % 40}" for k in range(N)], ""),
    ],
    ids=["unit", "brackets", "sign", "code", "percent", "units", "mostly words", "codes", "words"],
)
def test_numbers_with_signs_are_told_with_the_remedy(tmp_path: Path, texts: list[str], said: str) -> None:
    table = {"x": [k % 11 for k in range(N)], "c": texts, "label": [k % 3 for k in range(N)]}
    pq.write_table(pa.table({**table, "c": list(map(str, texts))}), tmp_path / "a.parquet")
    source = {"path": str(tmp_path / "a.parquet"), "label": "label"}
    recipe = {"name": "r", "source": source, "output": {"path": str(tmp_path / "out")}}
    found = preview(make_plan(Recipe.parse(recipe))).numbers
    assert [said in text for text in found] == ([True] if said else [])


def remedied(found: Draft, folder: Path, key: str, value: Any) -> dict[str, str]:
    """Return the kinds of the columns once the drafted recipe has a remedy."""
    source = {"path": str(folder / "a.csv"), "label": "label"}
    source |= {name: choice.value for name, choice in found.source.items()} | {"missing": []}
    operators = Recipe.model_fields["operators"].get_default(call_default_factory=True)
    recipe = {"name": "r", "source": source, "operators": operators, "output": {"path": str(folder / "out")}}
    recipe[key] = {**recipe[key], **value}
    looked = preview(make_plan(Recipe.parse(recipe)))
    assert looked.numbers == looked.values == ()
    return {column.name: column.kind for column in looked.columns}


@pytest.mark.parametrize(
    ("every", "share"), [(40, "8 of 300 values (2.7%)"), (10, "30 of 300 values (10.0%)")]
)
def test_numbers_of_which_only_a_bound_is_known_are_told(every: int, share: str, tmp_path: Path) -> None:
    """They made every number a category, and nothing said so."""
    found = drafted(
        tmp_path,
        age=[">90" if k % every == 0 else 18 + k % 71 for k in range(N)],
        x=[k % 11 for k in range(N)],
    )
    (said,) = found.preview.numbers
    assert said == (
        f"column 'age': {share} have '<' or '>' before a number, and every value is a category. For a "
        "numeric column, write the bound itself at the source (90 for '>90'); or set source.missing: "
        "['>90'], and they count as missing."
    )
    assert remedied(found, tmp_path, "source", {"missing": [">90"]})["age"] == "numeric"


def test_of_many_bounds_the_kind_is_the_remedy(tmp_path: Path) -> None:
    found = drafted(
        tmp_path, c=[f"<{k}" if k % 23 == 0 else 18 + k % 71 for k in range(N)], x=[k % 11 for k in range(N)]
    )
    (said,) = found.preview.numbers
    assert said.endswith("or write `c: amount` under operators.encode.columns, and they count as missing.")
    encode = {"encode": {"columns": {"c": "amount"}}}
    assert remedied(found, tmp_path, "operators", encode)["c"] == "numeric"


@pytest.mark.parametrize("ages", [["<18", ">65", "18-65"], ["<1", "1", "2", "3", ">3"]])
def test_classes_with_bounds_are_no_numbers(ages: list[str], tmp_path: Path) -> None:
    found = drafted(tmp_path, age=[ages[k // 7 % len(ages)] for k in range(N)], x=[k % 11 for k in range(N)])
    assert found.preview.numbers == ()


@pytest.mark.parametrize("code", [9999, 999, -99])
def test_a_number_of_nines_far_from_all_others_may_be_missing(code: int, tmp_path: Path) -> None:
    found = drafted(
        tmp_path, age=[code if k % 50 == 0 else 18 + k % 71 for k in range(N)], x=[k % 11 for k in range(N)]
    )
    (said,) = found.preview.values
    assert said == (
        f"column 'age': the number {code} (6 rows, 2.0%) lies apart from all others, which are from 18 to "
        f"88. If it stands for a missing value, set source.missing: ['{code}'], as the files write it; "
        "the key is for all columns."
    )
    assert remedied(found, tmp_path, "source", {"missing": [str(code)]})["age"] == "numeric"
    table = {
        "age": [code if k % 50 == 0 else 18 + k % 71 for k in range(N)],
        "label": [k % 3 for k in range(N)],
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    found = draft(str(tmp_path / "a.parquet"), "label", output=str(tmp_path / "out"))
    assert found.preview.values[0].endswith("missing value, write null for it at the source.")


@pytest.mark.parametrize(
    "values",
    [
        [99 if k % 50 == 0 else k % 90 for k in range(N)],
        [-99 if k % 50 == 0 else k % 90 - 45 for k in range(N)],
        [1234 if k % 50 == 0 else k % 90 for k in range(N)],
        [9999 if k == 0 else k % 90 for k in range(N)],
        [99 if k % 2 else 1 for k in range(N)],
    ],
    ids=["near", "one of several", "no nines", "once", "no others"],
)
def test_other_large_numbers_are_not_told(values: list[int], tmp_path: Path) -> None:
    assert drafted(tmp_path, v=values, x=[k % 11 for k in range(N)]).preview.values == ()


def test_a_word_for_missing_values_among_codes_may_be_one(tmp_path: Path) -> None:
    continent = [("EU", "AS", "NA", "AF")[k % 4] for k in range(N)]
    amount = ["NA" if k % 5 == 0 else k % 40 for k in range(N)]
    name = ["NA" if k % 5 == 0 else f"Street {k % 9}" for k in range(N)]
    found = drafted(tmp_path, continent=continent, amount=amount, name=name)
    assert [*found.warnings] == [
        "column 'continent': 'NA', 25.0% of the rows, is read as a missing value, and 'AF', 'AS', 'EU' are "
        "values. If it is one as well, take the word out of source.missing, which is for all columns."
    ]
    assert found.preview.values == found.warnings  # so that validate says it of a recipe of the user's, too
    summaries = summarise(pa.table({"continent": continent}))
    rare = codes_read_as_missing({"continent": {"NA": 0.001}}, summaries, "label")
    assert [*rare] == []


def test_a_few_numbers_with_a_word_for_missing_are_said_to_be_categories(tmp_path: Path) -> None:
    rating = [("n/k", 1, 2, 3, 4)[k % 5] for k in range(N)]
    grade = [("K", 1, 2, 3, 4)[k % 5] for k in range(N)]
    found = [*drafted(tmp_path, rating=rating, grade=grade).preview.numbers]
    assert len(found) == 1
    assert "column 'rating': all values but 'n/k' (60 rows, 20.0%) are numbers" in found[0]
    assert "set source.missing: [n/k]" in found[0]


def test_none_that_is_a_category_is_said_to_be_read_as_missing(tmp_path: Path) -> None:
    deposit = [("none", "part", "full")[k // 2 % 3] for k in range(N)]
    found = drafted(tmp_path, deposit=deposit, x=[k % 11 for k in range(N)])
    assert [*found.preview.values] == [
        "column 'deposit': 'none', 33.3% of the rows, is read as a missing value. If it is a category, set "
        "operators.encode.missing_values to the words that stand for no value, such as ['', NA, n/a, nan]."
    ]
    source = {"path": str(tmp_path / "a.csv"), "label": "label", "options": {"delimiter": ";"}}
    operators = Recipe.model_fields["operators"].get_default(call_default_factory=True)
    operators |= {"encode": {"missing_values": ["", "NA", "n/a", "nan"]}}
    recipe = {"name": "r", "source": source, "operators": operators, "output": {"path": str(tmp_path / "o")}}
    remedied = preview(make_plan(Recipe.parse(recipe)))
    assert remedied.values == ()
    assert "3 values: full 33%, none 33%, part 33%" in remedied.columns[0].about


def test_none_that_is_the_only_word_beside_gaps_is_said_to_be_read_as_missing(tmp_path: Path) -> None:
    """Such a column was listed as without a value, and nothing said why."""
    lien = ["none" if k % 3 == 0 else "" for k in range(N)]
    found = drafted(tmp_path, lien=lien, every=["none"] * N, x=[k % 11 for k in range(N)])
    assert [*found.preview.values] == [
        "column 'lien': 'none', 33.3% of the rows, is read as a missing value. If it is a category, set "
        "operators.encode.missing_values to the words that stand for no value, such as ['', NA, n/a, nan]."
    ]


@pytest.mark.parametrize(("other", "said"), [("", "the column has no value"), ("full", "'full' is a value")])
def test_none_is_told_of_by_what_else_there_is(tmp_path: Path, other: str, said: str) -> None:
    lien = ["none" if k // 2 % 3 == 0 else other for k in range(N)]
    found = drafted(
        tmp_path, lien=lien, x=["none" if k % 7 == 0 else k for k in range(N)], z=[k % 11 for k in range(N)]
    )
    assert [*found.warnings] == [
        f"column 'lien': 'none', 33.3% of the rows, is read as a missing value, and {said}. "
        "If it is one as well, take the word out of source.missing, which is for all columns."
    ]


def test_none_that_stands_for_a_missing_number_elsewhere_is_said(tmp_path: Path) -> None:
    deposit = [("none", "part", "full")[k // 2 % 3] for k in range(N)]
    found = drafted(tmp_path, deposit=deposit, x=["none" if k % 7 == 0 else k for k in range(N)])
    assert found.source["missing"].value == ["none"]
    assert [*found.warnings] == [
        "column 'deposit': 'none', 33.3% of the rows, is read as a missing value, and 'full', 'part' are "
        "values. If it is one as well, take the word out of source.missing, which is for all columns."
    ]


def test_categories_that_differ_in_case_alone_are_said(tmp_path: Path) -> None:
    region = [("North", "north", "south")[k // 2 % 3] for k in range(N)]
    code = [("a", "A", "b")[k // 2 % 3] for k in range(N)]
    found = drafted(tmp_path, region=region, code=code)
    assert [*found.preview.values] == [
        "column 'region': 'North', 'north' differ in the case of letters alone, and each is a category. If "
        "they are one, set operators.encode.categorical.fold_case: true."
    ]


@pytest.mark.parametrize(("end", "said"), [(" 23:22", True), ("", False)])
def test_dates_with_a_time_of_day_are_told(tmp_path: Path, end: str, said: bool) -> None:
    when = [f"{1 + k % 28}.{1 + k % 12}.2024{end}" for k in range(N)]
    (column, *_) = drafted(tmp_path, when=when).preview.columns
    assert column.kind == "datetime"
    assert column.about.endswith("of which the hour is a feature by default") == said


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_code_that_encode_reads_as_missing_is_said(tmp_path: Path, kind: pa.DataType) -> None:
    """North America is NA; in Parquet nothing was said of it."""
    region = pa.array([("NA", "EU", "AS", "AF")[k % 4] for k in range(N)]).cast(kind)
    table = pa.table({"region": region, "x": range(N), "label": ["yes" if k % 3 else "no" for k in range(N)]})
    pq.write_table(table, tmp_path / "a.parquet")
    found = draft(str(tmp_path / "a.parquet"), "label", output=str(tmp_path / "out"))
    (said,) = found.preview.values
    assert "column 'region': 'NA', 25.0% of the rows, is read as a missing value, and 'AF'" in said
    assert said.endswith(
        "set operators.encode.missing_values to the words that stand for no value, without it."
    )
