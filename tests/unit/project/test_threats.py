"""The tests that SECURITY.md, the tests' README and the README of training name exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SECURITY = (ROOT / "SECURITY.md").read_text("utf-8")
README = (ROOT / "tests" / "README.md").read_text("utf-8")


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of all tables of a section, without their heads."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    tables = re.findall(r"^\|[^\n]*\n\|---[^\n]*\n((?:\|[^\n]*\n)+)", section, re.MULTILINE)
    lines = "".join(tables).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


THREATS = rows(SECURITY, "Threats")
GUARANTEES = rows(
    (ROOT / "engine" / "training" / "README.md").read_text("utf-8"), "Guarantees and their tests"
)
ATTACKS = [row for row in rows(README, "Attacks and their tests") if len(row) == 2]


@pytest.mark.parametrize("row", THREATS, ids=lambda row: row[0][:60])
def test_every_threat_has_a_file_of_tests(row: list[str]) -> None:
    assert len(row) == 4
    named = re.findall(r"`([^`]+)`", row[-1])
    assert named
    for path in named:
        assert any(name.startswith("test_") for name in names_in(ROOT / "tests" / path)), path


@pytest.mark.parametrize("row", ATTACKS, ids=lambda row: row[0][:60])
def test_every_attack_has_its_tests(row: list[str]) -> None:
    named = re.findall(r"`([^`]+)::([^`]+)`", row[-1])
    assert named
    for path, name in named:
        assert name in names_in(ROOT / "tests" / path), f"{path}::{name}"


@pytest.mark.parametrize("row", GUARANTEES, ids=lambda row: row[0][:60])
def test_every_guarantee_of_training_has_its_tests(row: list[str]) -> None:
    assert len(row) == 3
    for path, name in re.findall(r"`([^`]+)::([^`]+)`", row[1]):
        assert name in names_in(ROOT / "tests" / path), f"{path}::{name}"
    assert "`" in row[1]


def test_the_tables_are_read_whole() -> None:
    assert len(GUARANTEES) > 20
    assert len(THREATS) > 45
    assert len(ATTACKS) > 35
