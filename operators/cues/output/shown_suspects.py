"""Suspects of ``suspects.json`` as ``rowsieve cues`` and the report show them, and which are asked about.

A suspect that is not worth an answer is listed, and can be answered, but nobody is urged to. Entries of
vectors and pictures are such where their balance wins nothing: nobody can tell what ``x[671]`` means, and a
model that leans on it may separate the classes without a shortcut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from connectors.foundation.messages import cut
from operators.cues.output.record import FoundCues, Suspect

LARGE_GAIN = 0.1
"""Gain of a suspect from which it is asked about although models lean on it in part alone."""
ASKED_STRENGTH_OF_LARGE_GAIN = 0.1
"""Least strength of such a suspect."""
ASKED_STRENGTH = 0.25
"""Strength of a suspect from which it is asked about although its balance is not worth its cost."""
LEAST_GAIN_OF_ENTRY = 0.01
"""Gain of an entry of a vector on held-out rows from which it may be asked about."""
WEAK = "weak"
WEAK_EXPLAINED = (
    f"{WEAK}: no answer is needed, as models hardly lean on it or its balance wins little; you can give one."
)
ENTRY = re.compile(r".+\[\d+\]")
"""Name of an entry of a vector, which says nothing."""
SEE_ROWS = "look at the report's example rows, first at those of low accuracy"
MAX_NAMES, MAX_NAME = 3, 40


def wins_much(suspect: Suspect) -> bool:
    """Return whether balancing a suspect would win much, and more than it costs."""
    return bool(suspect["gain"] >= max(LARGE_GAIN, suspect["cost"]))


def is_worth_an_answer(suspect: Suspect) -> bool:
    """Return whether models clearly lean on a suspect, or lean on it in part and its balance would win much.

    A word that goes with a class though the other words do not tell it is worth an answer whatever its
    figures: the models on which they were measured see no words. An entry of a vector whose balance wins
    nothing is not.
    """
    if is_idle_entry(suspect):
        return False
    least = ASKED_STRENGTH_OF_LARGE_GAIN if wins_much(suspect) else ASKED_STRENGTH
    return bool(suspect.get("stands_out") or suspect["strength"] >= least)


def asked_suspects(found: FoundCues) -> list[Suspect]:
    """Return the open suspects that the user is asked about, the strongest first.

    Where the weights follow robust ones, the strongest open suspect is one of them, but for entries of
    vectors whose balance wins nothing.
    """
    suspects = [one for one in found["suspects"] if one["answer"] == "open" and not is_idle_entry(one)]
    strongest = suspects[:1] if found["part"] else []
    return [one for one in suspects if one in strongest or is_worth_an_answer(one)]


def answer_text(suspect: Suspect, found: FoundCues) -> str:
    """Return the answer of the recipe, ``open``, or that none is needed."""
    is_weak = suspect["answer"] == "open" and suspect not in asked_suspects(found)
    return WEAK if is_weak else str(suspect["answer"])


def slice_text(suspect: Suspect) -> str:
    """Return the slice, with the other columns that say the same of the rows."""
    also = [cut(name, MAX_NAME) for name in suspect.get("also", ())]
    more = f" and {len(also) - MAX_NAMES} more" if len(also) > MAX_NAMES else ""
    return f"{suspect['slice']}; also {', '.join(also[:MAX_NAMES])}{more}" if also else suspect["slice"]


def lowest_accuracies(by_class: Mapping[str, float | None], top: int) -> list[tuple[str, float]]:
    """Return the ``top`` classes of the lowest accuracy, the lowest first, of those with rows."""
    known = [(name, value) for name, value in by_class.items() if value is not None]
    return sorted(known, key=lambda one: one[1])[:top]


def is_entry(suspect: Suspect) -> bool:
    """Return whether a suspect is an entry of a vector, so that its name says nothing."""
    return ENTRY.fullmatch(suspect.get("feature", "")) is not None


def is_idle_entry(suspect: Suspect) -> bool:
    """Return whether a suspect is an entry of a vector whose balance wins nothing on held-out rows."""
    return is_entry(suspect) and suspect["gain"] < LEAST_GAIN_OF_ENTRY


def sentence_on_entries(found: FoundCues) -> str:
    """Say what to look at where suspects are entries of vectors; empty where none is."""
    entries = [one["feature"] for one in found["suspects"] if is_entry(one)]
    if not entries:
        return ""
    begin = "Each of " if len(entries) > 1 else ""
    listed = " and ".join(f"`{name}`" for name in entries[:2]) + (" and the like" if entries[2:] else "")
    return (
        f"{begin}{listed} is a direction of the vector that stands for a row's picture, text or signal, "
        "and nothing tells its meaning in words. Look at the report's example rows: what sets the rows of a "
        "group of low accuracy apart from the other rows of their class may be the shortcut. Answer only if "
        "you see it."
    )
