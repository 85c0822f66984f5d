"""Answers as `rowsieve cues` prints them, pasted into a recipe: they mean the column of the suspect alone."""

from __future__ import annotations

from itertools import permutations, product

import pytest
import yaml

from operators.cues.named.name_checks import check_references
from operators.cues.named.recipe_text import yaml_reference
from operators.cues.named.references import FeatureColumns
from operators.cues.output.listing import recipe_reference, recipe_section
from operators.cues.params import CuesParams, CueWords, Reference
from operators.encode.words import ElapsedWords, Gap, LevelWords, NumberWords, PartWords, Words
from operators.encoded_features import Output

LIKE_CONDITIONS = (
    "n",
    "n > 0",
    "n > 3",
    "n = a",
    "n is missing",
    "n is 1 (not 0)",
    "n[0]",
    "n*",
    "n: hour (cos)",
    "n between 20:00 and 05:00",
    "n on or after 1970-01-03",
)
NASTY = (
    *LIKE_CONDITIONS,
    *(" n", "n ", "\tn", "n\nm", "`n`", "'n'", '"n"', "n\\", "n, m", "n: a", "n #", "word:", "words:"),
    *("yes", "null", "~", "1e5", "0x1", "2020-01-01", "=", "<<", "?", "*", "|", "- n", "[n]", "{n}", "#n"),
    *(
        "!n",
        "&n",
        "%n",
        "@n",
        "é",
        "😀",
        "😀\t",
        "\u200bn",
        "\ufeffn",
        "\x85",
        "\u2028",
        "\U000e0001",
        "\x7f",
    ),
)
KINDS = ("number", "levels", "shares", "date", "vector")


def pasted(reference: object) -> Reference:
    """Return a reference as the recipe has it that the answer was copied to."""
    recipe = yaml.safe_load(recipe_section([reference], []))
    return CuesParams.model_validate(recipe["operators"]["cues"]).spurious[0]


@pytest.mark.parametrize("name", NASTY)
def test_yaml_reads_every_name_as_it_is(name: str) -> None:
    assert pasted(name) == name
    assert yaml.safe_load(f"[{yaml_reference(name)}]") == [name]
    word = f"{name}x"
    assert pasted({"column": name, "words": [word]}) == CueWords(column=name, words=(word,))


def encoded(name: str, kind: str) -> list[tuple[Output, Words]]:
    """Return the features of a column, with the words of their cuts."""
    if kind == "number":
        missing = Output(name, "numeric", f"{name} is missing", "missing")
        return [
            (Output(name, "numeric", name, "value"), NumberWords(name)),
            (missing, LevelWords(name, missing.label)),
        ]
    if kind == "date":
        parts = [
            (Output(name, "datetime", f"{name}: hour ({wave})", "part"), PartWords(name, "hour", wave))
            for wave in ("sin", "cos")
        ]
        return [(Output(name, "datetime", name, "value"), ElapsedWords(name, 0.0)), *parts]
    if kind == "vector":
        return [
            (Output(name, "vector", f"{name}[{i}]", "entry"), NumberWords(f"{name}[{i}]")) for i in range(2)
        ]
    levels = [Output(name, "categorical", f"{name} = {level}", "category") for level in ("a", "b")]
    found: list[tuple[Output, Words]] = [(one, LevelWords(name, one.label)) for one in levels]
    share = Output(name, "categorical", f"{name}: share of x", "target")
    return [*found, (share, NumberWords(share.label))] if kind == "shares" else found


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_means_a_feature_of_the_column_whatever_the_others_are_called(kind: str) -> None:
    """`n = a`, a value of the column `n`, was read as another column of that name, and balanced that."""
    for (name, other), other_kind in product(permutations(LIKE_CONDITIONS, 2), ("number", None)):
        features = encoded(name, kind)
        after = encoded(other, other_kind) if other_kind else []
        outputs = tuple(output for output, _ in (*features, *after))
        words = {place: one for place, (_, one) in enumerate((*features, *after))}
        columns = FeatureColumns((name, other), (len(features), len(after)), outputs, words)
        for place, (output, own) in enumerate(features):
            gap = Gap(-3.0, 1.0) if output.role == "value" else Gap(0.0, 0.6)
            reference = pasted(recipe_reference(place, columns, own.condition(gap)))
            check_references([reference], columns.names, "spurious")
            meant = columns.answered(reference)
            assert place in meant, (name, other, reference)
            assert max(*meant, *columns.named(reference).columns) < len(features), (name, other, reference)
