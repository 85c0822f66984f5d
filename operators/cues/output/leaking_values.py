"""Sentences on values of a column that tell a class by themselves, as leaks do.

They stand in ``rowsieve cues`` and the report. ``validate`` names whole columns that tell the label. A
single value of a column can do so too, such as "died within two months" of a follow-up.
"""

from __future__ import annotations

from connectors.foundation.messages import shorten
from operators.cues.output.record import FoundCues, Suspect
from operators.metrics.group_scores import MIN_ROWS

MIN_PURITY, MAX_CLASS_SHARE = 0.99, 0.95
"""Share of the rows of a slice that are of one class from which the slice tells it, and the share of this
class among all rows up to which that is remarkable."""
MAX_NOTES = 3


def leaking_values(found: FoundCues) -> list[str]:
    """Return a sentence for each of the strongest open suspects whose rows are nearly all of one class."""
    notes = []
    for suspect in found["suspects"]:
        name, purity = _purest_class(suspect)
        rows = round(suspect["share"] * found.get("sample_rows", 0))
        own = suspect.get("share_by_class", {}).get(name, 0.0)
        remarkable = rows >= MIN_ROWS and purity * suspect["share"] <= MAX_CLASS_SHARE * own
        if suspect["answer"] == "open" and purity >= MIN_PURITY and remarkable:
            of_rows = f"All {rows:,}" if purity == 1 else f"{purity:.1%} of the {rows:,}"
            notes.append(
                f"{of_rows} sampled rows with `{suspect['slice']}` are of the class {shorten(name)}. If "
                "this value is not known when you predict, it leaks the label: leave its column out "
                "(source.exclude)."
            )
    return notes[:MAX_NOTES]


def _purest_class(suspect: Suspect) -> tuple[str, float]:
    """Return the class of most rows of a slice and its share there; no class where it cannot be told.

    The shares of the slice in all rows and in each class tell it if only one class has rows there, and of two
    classes in any case.
    """
    shares, share = suspect.get("share_by_class", {}), suspect["share"]
    inside = [name for name, value in shares.items() if value > 0]
    if len(inside) == 1:
        return inside[0], 1.0
    if len(shares) != 2 or len(set(shares.values())) != 2:
        return "", 0.0
    (name, most), (_, least) = sorted(shares.items(), key=lambda item: -item[1])
    return name, most * (share - least) / (most - least) / share
