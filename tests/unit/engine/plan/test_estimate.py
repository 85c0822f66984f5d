"""Expected time and memory: the rates are those of the benchmark, and grow with rows and features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.plan.estimate import IMAGES_PER_SECOND, START_SECONDS, STEPS, TEXTS_PER_SECOND, estimate
from engine.plan.first_recipe import draft
from engine.recipe.recipe import STANDARD_CHAIN
from operators.base import Cost
from operators.registry import operator_class

README = Path(__file__).resolve().parents[3] / "benchmarks/README.md"
CHAIN: dict[str, dict[str, Any]] = {"parts": {}, "ingest": {}, "outliers": {}, **STANDARD_CHAIN}
COSTS = {name: operator_class(name).variant(params).cost for name, params in CHAIN.items()}
PARTS = {
    "weights": ("weights: folds", "weights: rows"),
    "report": ("descriptions", "report: counting", "report: drawing"),
}


def test_the_costs_are_those_of_the_page() -> None:
    section = README.read_text("utf-8").partition("<!-- begin scale-standard -->")[2]
    lines = section.partition("<!-- end scale-standard -->")[0].strip().splitlines()
    head, _, *rows = [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line[:1] == "|"
    ]
    table = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    columns = [f"CPU s per 10^6, at {rows:,}" for rows in (Cost.SMALL, Cost.LARGE)]
    for name, cost in {**COSTS, **STEPS}.items():
        parts = [table[part] for part in PARTS.get(name, (name,))]
        sums = [sum(float(part[column]) for part in parts) for column in columns]
        assert (cost.small, cost.large) == pytest.approx(sums, rel=0.01)
        assert cost.mib == max(int(part[f"peak MiB, at {Cost.LARGE:,}"]) for part in parts)
    assert {*table} == {part for name in {**COSTS, **STEPS} for part in PARTS.get(name, (name,))}


def test_time_grows_with_rows_and_features_and_memory_with_the_shard() -> None:
    small, large = estimate(COSTS, 10_000, 64, [10_000]), estimate(COSTS, 1_000_000, 64, [50_000] * 20)
    assert small.seconds < large.seconds < 300
    assert estimate(COSTS, 10_000, 128, [10_000]).seconds > small.seconds
    assert estimate(COSTS, 1_000_000, 64, [1_000_000]).mib > 2 * large.mib
    assert large.slowest == "outliers"


MEASURED = {(10_000, 10): (9.7, 12.4), (10_000, 40): (9.7, 14.1), (20_000, 40): (16.4, 20.2)}
"""Rows and classes -> CPU seconds of the standard chain with 64 features on two classes, and on these."""


def test_time_grows_with_the_classes_as_measured() -> None:
    for (rows, classes), (two, many) in MEASURED.items():
        times = [estimate(COSTS, rows, 64, [rows], n_classes=n).seconds - START_SECONDS for n in (2, classes)]
        assert times[1] / times[0] == pytest.approx(many / two, rel=0.15)


def test_init_counts_the_classes(tmp_path: Path) -> None:
    found = []
    for classes in (2, 10):
        rows = [f"{i % 7},{i % 13},c{i * 7919 % classes}" for i in range(600)]
        (tmp_path / f"{classes}.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
        found.append(
            draft(str(tmp_path / f"{classes}.csv"), "y", output=str(tmp_path / "out")).estimate.seconds
        )
    assert found[0] < found[1]


def test_init_counts_all_categories_that_get_a_feature(tmp_path: Path) -> None:
    """Of 50 values each has a feature; before, 30 at most were counted."""
    found = []
    for values in (30, 50):
        rows = [f"{i % 7},v{i * 7919 % values},{i % 2}" for i in range(600)]
        (tmp_path / f"{values}.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
        made = draft(str(tmp_path / f"{values}.csv"), "y", output=str(tmp_path / "out"))
        found.append(made.estimate.seconds)
    assert found[0] < found[1]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (100, "about 5 s of one core"),
        (1_000_000, "about 5 min of one core and 660 MiB, mostly for `outliers`"),
        (10**9, "about 76 h"),
    ],
)
def test_the_text_is_rounded(rows: int, expected: str) -> None:
    assert expected in estimate(COSTS, rows, 64, [50_000]).text


def test_an_operator_that_is_not_in_the_recipe_is_told_apart(tmp_path: Path) -> None:
    assert (
        "mostly for `outliers`, which the run adds"
        in estimate(COSTS, 10**6, 64, [50_000], named=["probe"]).text
    )
    (tmp_path / "t.csv").write_text("a,b,y\n" + "".join(f"{i % 7},{i % 13},{i % 2}\n" for i in range(600)))
    found = draft(str(tmp_path / "t.csv"), "y", output=str(tmp_path / "out")).estimate
    assert found.slowest == "outliers"
    assert ", which the run adds" in found.text


def test_images_are_told_apart() -> None:
    cost = estimate(COSTS, 3500, 1280, [3500], images=1)
    assert cost.image_seconds == pytest.approx(3500 / IMAGES_PER_SECOND)
    assert cost.text.endswith("; up to 2 min more for the network that reads images")
    assert f"embed, decoding included | {IMAGES_PER_SECOND:g} |" in README.read_text("utf-8")


def test_free_text_is_told_apart() -> None:
    cost = estimate(COSTS, 10_000, 400, [10_000], texts=2)
    assert cost.text_seconds == pytest.approx(20_000 / TEXTS_PER_SECOND)
    assert cost.text.endswith("; up to 7 min more for the network that reads free text")
    assert f"embed, float32 | {TEXTS_PER_SECOND:g} |" in README.read_text("utf-8")
