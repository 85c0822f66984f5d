"""The content of ``suspects.json`` as types, which the sentences, the report and ``rowsieve cues`` read.

``listing.write_suspects`` writes it. Entries may be missing in the files of earlier versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class Suspect(TypedDict, total=False):
    """One suspected shortcut; the figures are those of ``search.suspects.Suspect``."""

    feature: str
    also: Sequence[str]
    """Other columns that say the same of the rows."""
    position: int
    cut: float
    """In the unit that people read."""
    feature_cut: float
    slice: str
    """Condition in words that the rows inside hold."""
    answer: str
    """``open``, ``spurious`` or ``legitimate``."""
    reference: Any
    """How the recipe names it."""
    share: float
    share_by_class: Mapping[str, float]
    accuracy_inside: Mapping[str, float | None]
    accuracy_outside: Mapping[str, float | None]
    gain: float
    gain_rows: int
    small_cells: Sequence[int]
    cost: float
    strength: float
    stands_out: bool
    leads: bool
    """Whether balanced accuracy rests on its column by far most."""
    balanced: bool
    """Whether the weights balance it though the recipe does not name it."""


class FoundCues(TypedDict, total=False):
    """The findings of the operator, and the weights that follow."""

    suspects: Sequence[Suspect]
    """The strongest first."""
    classes: Sequence[str]
    sample_rows: int
    robustness: str
    spurious: Sequence[Any]
    legitimate: Sequence[Any]
    """Answers of the recipe, as it has them."""
    reason: str
    """Why nothing was searched for; empty where it was."""
    part: float | None
    """Part of the robust factor that is followed; None where the recipe names shortcuts that divide rows."""
    blend: float
    """The same, also where shortcuts are named."""
    slice_blend: float
    class_strength: float
    named_cost: float
    searched_part: float
    expected_gain: float
    """As in ``CueState``."""
    balanced_columns: Sequence[str] | str | None
    """Columns that the search balances, where it does not follow twins and slices."""
    class_sets: Sequence[Sequence[str]]
    """Classes of each set that the balanced column tells from the others, the smallest set first."""
    several: bool
    """Whether each of the balanced columns carries a shortcut of its own."""
    leaning: str
    """Column that decided how far classes are balanced."""
    kept: Sequence[str]
    """Columns that are balanced beside the named ones."""
    undivided: Sequence[str]
    """Named shortcuts that divide no rows."""
    unclear: Sequence[str]
    """Sentences on words that cannot be balanced as meant."""
    found_words: Sequence[Mapping[str, Any]] | None
    """``column`` and ``words`` that are balanced though nobody named them."""
    wrong_labels: Mapping[str, Sequence[float]]
    """By class: rows that break the shortcut, and expected wrong labels among them."""
    evidence: Mapping[str, Any] | None
    weakest: str | None
    """The measurement that speaks most against a shortcut."""
    effective_share: Sequence[float]
    trust: Sequence[float]
    """Of each class: ``CueState.effective``, and the part of its factors that the limits leave."""
    trade_off: Mapping[str, Any] | None
    """``curve_report.curve_record``."""
