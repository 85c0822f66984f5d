"""Faults of a label column that show in the counts of its values, before anything is computed.

Used by ``rowsieve validate``, ``rowsieve init`` and the report.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from connectors.foundation.messages import shorten
from operators.class_shares import class_shares
from operators.counts import count
from operators.values import is_number
from operators.yaml_text import inline_yaml

FEW_ROWS = 50
"""Rows of a class below which it is named: a fifth of them validates, and each weighs much."""
MANY_CLASSES = 20
"""Distinct values above which a label may be a quantity, or name rows."""
MISTYPED_ROWS = 10
"""Rows of a class below which its label may be mistyped: hardly one of them validates."""
ROWS_PER_CLASS = 20.0
"""Mean rows of a value below which many distinct values are not classes."""
TRAILING = re.compile(r"[\s.;,]+$")
"""Marks at the end of a value that do not make it another one."""
STRIP = "source.strip: true"


@dataclass(frozen=True)
class LabelFinding:
    """A fault or a doubt about the label, with its remedy.

    Attributes
    ----------
    kind : ``one_class``, ``quantity``, ``alike``, ``spaces``, ``mixed``, ``rare``, ``missing``,
        ``unmapped`` or ``unsought``.
    text : sentences for people, with the remedy as it is written in a recipe.
    fatal : whether the label cannot be used as it is.
    """

    kind: Literal[
        "one_class", "quantity", "alike", "spaces", "mixed", "rare", "missing", "unmapped", "unsought"
    ]
    text: str
    fatal: bool = False


@dataclass(frozen=True)
class LabelCounts:
    """Counts of a label's values.

    Attributes
    ----------
    name : the label column.
    counts : rows of each value.
    missing : rows without a value.
    is_exact : whether all rows were counted; else a sample of them.
    counted : what the rows are called.
    """

    name: str
    counts: Mapping[Any, int]
    missing: int
    is_exact: bool = True
    counted: str = "rows"

    @property
    def rows(self) -> int:
        """All rows that were counted."""
        return sum(self.counts.values()) + self.missing

    @property
    def sorted(self) -> list[tuple[Any, int]]:
        """Values and their rows, the most frequent first, then by value."""
        return sorted(self.counts.items(), key=lambda pair: (-pair[1], str(pair[0])))


def check_labels(
    label: LabelCounts,
    *,
    classes: Sequence[Any] | None = None,
    tolerated: float = 0.0,
    balanced: bool = True,
) -> list[LabelFinding]:
    """Return what is wrong or doubtful about a label, the fatal first.

    Parameters
    ----------
    label : the counts.
    classes : values that the recipe allows. A recipe that lists them has examined them, so that many are
        no fault.
    tolerated : share of faulty rows that the recipe allows; 0 where a faulty row ends the run.
    balanced : whether the weights give every class the same sum.
    """
    found = [*_too_few(label), *([] if classes is not None else _quantity(label))]
    if not any(finding.fatal for finding in found):
        found += [*_alike(label), *_mixed(label), *_rare(label, balanced), *_missing(label, tolerated)]
    return found


def look_alike(values: Sequence[Any]) -> list[list[str]]:
    """Group the texts that differ only in spaces, trailing full stops, case or the Unicode form of a letter.

    Groups of one are left out.
    """
    groups: dict[str, list[str]] = {}
    for value in values:
        if isinstance(value, str):
            groups.setdefault(_folded(value), []).append(value)
    return [sorted(group) for group in groups.values() if len(group) > 1]


def merging_map(label: LabelCounts, *, strip: bool = False) -> dict[str, str]:
    """Return the ``label_map`` that joins values which look alike, to the most frequent of each group.

    Parameters
    ----------
    strip : whether white space at the ends is dropped before the map is applied.
    """
    found: dict[str, str] = {}
    for group in look_alike([*label.counts]):
        rows: dict[str, int] = {}
        for value in group:
            key = value.strip() if strip else value
            rows[key] = rows.get(key, 0) + label.counts[value]
        kept = max(rows, key=lambda value: (rows[value], value))
        found |= {value: kept for value in sorted(rows) if value != kept}
    return found


def has_spaces(values: Sequence[Any]) -> bool:
    """Return whether a text has white space at one of its ends."""
    return any(isinstance(value, str) and value != value.strip() for value in values)


def _folded(value: str) -> str:
    value = unicodedata.normalize("NFKC", value).strip()
    return TRAILING.sub("", value).casefold() or value


def _spelt(value: str) -> str:
    """Return a value in quotes, with escapes for characters that a composed letter would not have."""
    return repr(value) if unicodedata.is_normalized("NFC", value) else ascii(value)


def _too_few(label: LabelCounts) -> list[LabelFinding]:
    if len(label.counts) > 1:
        return []
    if not label.counts:
        text = f"The label {label.name!r} has no value{_where(label)}. Name another column as source.label."
        return [LabelFinding("one_class", text, fatal=label.is_exact)]
    only = shorten(next(iter(label.counts)))
    text = (
        f"The label {label.name!r} has one value{_where(label)}, {only}: there is nothing to tell apart. "
        f"Name another column as source.label, or add rows of another class."
    )
    return [LabelFinding("one_class", text, fatal=label.is_exact)]


def _quantity(label: LabelCounts) -> list[LabelFinding]:
    """Report many distinct values with few rows each: numbers are a quantity, and texts name rows."""
    n, rows = len(label.counts), sum(label.counts.values())
    fractions = any(isinstance(value, float) and value % 1 for value in label.counts)
    crowded = rows / max(n, 1) >= ROWS_PER_CLASS
    if n <= MANY_CLASSES or (crowded and not fractions):
        return []
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in label.counts)
    what = "a quantity" if numbers else "free text or an identifier"
    remedy = (
        "make classes of it at the source, such as high and low (`rowsieve retrain --set objective=squared "
        f"--set target={label.name}` then predicts the number itself)"
        if numbers
        else "name a column whose values repeat"
    )
    shown = ", ".join(shorten(value) for value, _ in label.sorted[:3])
    text = (
        f"The label {label.name!r} has {n:,} distinct values{_where(label)}, such as {shown}: it is {what}, "
        f"and Rowsieve works with classes. Name another column as source.label, {remedy}, or list its "
        f"values under source.classes if each is a class."
    )
    return [LabelFinding("quantity", text, fatal=True)]


def _alike(label: LabelCounts) -> list[LabelFinding]:
    groups = look_alike([*label.counts])
    spaces = has_spaces([*label.counts])
    if not groups and spaces:
        value = next(value for value in label.counts if isinstance(value, str) and value != value.strip())
        text = (
            f"Values of the label {label.name!r} have spaces at their ends, such as {value!r}. Set {STRIP}."
        )
        return [LabelFinding("spaces", text)]
    if not groups:
        return []
    listed = "; ".join(
        " and ".join(f"{_spelt(value)} ({label.counts[value]:,} rows)" for value in group)
        for group in groups[:5]
    )
    joined = merging_map(label, strip=spaces)
    steps = [STRIP] if spaces else []
    steps += [f"source.label_map: {inline_yaml(dict(sorted(joined.items())))}"] if joined else []
    counted = "" if label.counted == "rows" else f", counted in the {label.counted},"
    text = (
        f"Values of the label {label.name!r}{counted} look like one class: {listed}. If they are, set "
        f"{' and '.join(steps)}."
    )
    return [LabelFinding("alike", text)]


def _mixed(label: LabelCounts) -> list[LabelFinding]:
    """Report numbers among words: mostly two spellings of a class, or a code for a missing label."""
    texts = [value for value in label.counts if isinstance(value, str)]
    numbers = [value for value in texts if is_number(value)]
    if not texts or not numbers or len(numbers) == len(label.counts):
        return []
    words = [value for value in texts if value not in numbers]
    shown = [", ".join(f"{v!r} ({label.counts[v]:,} rows)" for v in part[:3]) for part in (numbers, words)]
    text = (
        f"The label {label.name!r} holds values of two types: numbers such as {shown[0]} and words such as "
        f"{shown[1]}. If they stand for the same classes, join them with source.label_map; if one stands for "
        f"a missing label, name it in source.missing."
    )
    return [LabelFinding("mixed", text)]


def _rare(label: LabelCounts, balanced: bool) -> list[LabelFinding]:
    rows = sum(label.counts.values())
    few = min(FEW_ROWS, rows / max(len(label.counts), 1) / 2)  # all classes of a small table are small
    rare = [(value, n) for value, n in reversed(label.sorted) if n < few]
    if not rare or not label.is_exact:
        return []
    value, n = rare[0]
    others = f", as {'have' if len(rare) > 2 else 'has'} {len(rare) - 1} more" if len(rare) > 1 else ""
    share = float(class_shares(np.array(list(label.counts.values())))[list(label.counts).index(value)])
    weight = (
        f" Under full class balance it has at most about {share:.1%} of all weight, and each of its rows "
        f"weighs up to {share * rows / n:.2g} times the mean row. The run gives it less where fewer of its "
        "rows are in training or held-out rows favour less balance, and says how much."
        if balanced
        else ""
    )
    text = (
        f"The class {shorten(value)} of the label {label.name!r} has {n:,} of {rows:,} {label.counted} "
        f"(fewer than {FEW_ROWS}{others}).{weight} Join it with another by source.label_map, leave it out "
        f"with source.filter: {inline_yaml([[label.name, '!=', value]])}, or keep it knowingly."
    )
    return [LabelFinding("rare", text)]


def mistyped_labels(label: LabelCounts) -> str:
    """Return a sentence on classes of so few rows that their label may be mistyped, with the remedy.

    It is empty if there are none, or if all classes of the table are small.

    Examples
    --------
    >>> mistyped_labels(LabelCounts("churn", {"no": 400, "yes": 300, "Maybe": 1}, 0))[:71]
    "The class 'Maybe' of the label 'churn' has 1 row, too few to learn from"
    >>> mistyped_labels(LabelCounts("churn", {"no": 4, "yes": 1}, 0))
    ''
    """
    rows = sum(label.counts.values())
    few = min(MISTYPED_ROWS, rows / max(len(label.counts), 1) / ROWS_PER_CLASS)
    rare = [(value, n) for value, n in reversed(label.sorted) if n < few]
    if not rare:
        return ""
    value, n = rare[0]
    others = f", and so have {count(len(rare) - 1, 'more class')}" if rare[1:] else ""
    kept = inline_yaml([value for value, n in label.sorted if n >= few][:MANY_CLASSES])
    return (
        f"The class {shorten(value)} of the label {label.name!r} has {count(n, 'row')}, too few to learn "
        f"from{others}. If a label is mistyped, join it with its class by source.label_map, or set its rows "
        f"aside by source.classes: {kept} with source.on_error: quarantine."
    )


def _missing(label: LabelCounts, tolerated: float) -> list[LabelFinding]:
    share = label.missing / max(label.rows, 1)
    if not label.missing or share <= tolerated:
        return []
    text = (
        f"{label.missing:,} of {label.rows:,} rows{'' if label.is_exact else ' of the sample'} ({share:.2%}) "
        f"have no label {label.name!r}: the run would stop at the first. Leave them out with source.filter: "
        f"{inline_yaml([[label.name, '!=', None]])}, or set them aside with source.on_error: quarantine and "
        f"source.max_error_rate: {_above(share)}."
    )
    return [LabelFinding("missing", text)]


def _where(label: LabelCounts) -> str:
    return "" if label.is_exact else f" in a sample of {label.rows:,} rows"


def _above(share: float) -> float:
    """Return a round share above this one."""
    return min(1.0, round(share * 1.1 + 0.005, 2))
