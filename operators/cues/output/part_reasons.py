"""Reasons for which a shortcut is balanced in part, and not in full."""

from __future__ import annotations

from operators.cues.output.curve_report import group_word, published_point
from operators.cues.output.record import FoundCues
from operators.cues.search.class_column import RIGHT
from operators.cues.settings import CueSettings

MORE_LOST = "with wrong labels more of it loses as often as it wins, on tables with known groups"
MAYBE_WRONG = "the other columns do not rule out that rows which break it have wrong labels"
NO_MORE_EVIDENCE = "the evidence allows no more"


def why_part(found: FoundCues) -> str:
    """Say why the search's shortcut is balanced in part, and not in full."""
    evidence, curve = found["evidence"] or {}, found.get("trade_off")
    many = evidence.get("classes", 2) > 2
    if many and found.get("wrong_labels"):
        return MORE_LOST
    reached = published_point(curve) if curve else None
    if curve and reached:
        so, in_full = (point["worst_accuracy"] for point in (reached, curve["points"][-1]))
        if in_full < so:
            return (
                f"the worst {group_word(curve)} on held-out rows has {so:.3f} so, and {in_full:.3f} in full"
            )
    if many and evidence.get("column_ratio", 1.0) < RIGHT[1]:
        return MAYBE_WRONG
    return NO_MORE_EVIDENCE


def why_named_part(found: FoundCues) -> str:
    """Say why named shortcuts and words are balanced in part; empty where they are in full, or not at all."""
    part = found.get("blend", 1.0)
    named = found.get("spurious") or found.get("found_words")
    if not named or "named_cost" not in found or not 0 < part < 1:
        return ""
    share = CueSettings.named_share
    if part < share:
        return f"No more than {part:.0%} is balanced, as more would cost more than `max_named_cost` allows."
    return (
        f"The part of {part:.0%} is as much as evidence and held-out rows support: all of it would give "
        "wrong labels among the rows that break the shortcut as much weight as the right ones there."
    )
