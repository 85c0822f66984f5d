"""The part of the report that describes groups in words, from the descriptions that were made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from operators.report import ExampleRows
from operators.report.text import percent

MAX_GROUPS = 60
MAX_CENTRAL_GROUPS = 12


@dataclass(frozen=True)
class DescribedGroup:
    """One line of the table. ``rule`` holds the figures of the rule, or is None."""

    name: str
    class_name: str
    noise: bool
    text: str
    terms: list[str]
    """A line for each text column: the terms that distinguish the group most."""
    rule: Mapping[str, Any] | None


@dataclass(frozen=True)
class DescribedGroups:
    """Content of the part "Groups in words"; without groups and slices the report has no such part."""

    groups: list[DescribedGroup] = field(default_factory=list)
    checked: int = 0
    """Drawn rows on which the rules were tested."""
    slices: list[tuple[str, str]] = field(default_factory=list)
    """Suspected shortcuts on entries of vectors, each with the rule that describes its rows."""
    central: list[ExampleRows] = field(default_factory=list)
    """Rows nearest to the centre of their group."""


def describe_groups(descriptions: Mapping[str, Any] | None) -> DescribedGroups:
    """Convert descriptions, as ``reports/<version>.groups.json`` holds them, for the template.

    Where every class is one group without noise, nothing in a class can be told apart, and groups are not
    described.
    """
    if descriptions is None:
        return DescribedGroups()
    entries = descriptions["groups"][:MAX_GROUPS]
    by_class = {entry["class"]: entry["rule"]["checked"] for entry in entries if entry["rule"]}
    inferred = [entry for entry in entries if entry["group"] >= 0 and entry["central_rows"]]
    slices = [(", ".join([one["slice"], *one["also"]]), one["description"]) for one in descriptions["slices"]]
    classes = [entry["class"] for entry in entries]
    if len(set(classes)) == len(classes):
        return DescribedGroups(slices=slices)
    groups = [_described(entry) for entry in entries]
    return DescribedGroups(groups, sum(by_class.values()), slices, _central(inferred))


def _described(entry: Mapping[str, Any]) -> DescribedGroup:
    noise = entry["group"] < 0
    name = "noise" if noise else str(entry["group"])
    return DescribedGroup(
        name, entry["class"], noise, entry["description"], term_lines(entry["terms"]), entry["rule"]
    )


def term_lines(terms: list[Mapping[str, Any]]) -> list[str]:
    """Return one line for each text column: terms that are more frequent in the group than in its class."""
    lines = []
    for column in dict.fromkeys(term["column"] for term in terms):
        named = [
            f"{term['term']} ({percent(term['in_group'])}, else {percent(term['in_rest_of_class'])})"
            for term in terms
            if term["column"] == column
        ]
        lines.append(f"more often in {column}: {', '.join(named)}")
    return lines


def _central(entries: list[Mapping[str, Any]]) -> list[ExampleRows]:
    """Return the rows nearest to the centre of each of the first groups, for the report's example rows."""
    return [
        ExampleRows(
            f"Group {entry['group']} of class {entry['class']}: rows nearest to its centre",
            entry["central_rows"],
            "nearest first, of the drawn rows",
        )
        for entry in entries[:MAX_CENTRAL_GROUPS]
    ]
