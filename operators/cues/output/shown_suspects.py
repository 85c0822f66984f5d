"""Suspects of ``suspects.json`` as ``rowsieve cues`` and the report show them, and which are asked about.

A suspect that is not worth an answer is listed, and can be answered, but nobody is urged to. Entries of
vectors and pictures are such where their balance wins nothing: nobody can tell what ``x[671]`` means, and a
model that leans on it may separate the classes without a shortcut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from connectors.foundation.messages import cut, first_of
from operators.counts import count
from operators.cues.output.record import FoundCues, Suspect
from operators.metrics.group_scores import MIN_ROWS

LARGE_GAIN = 0.1
"""Gain of a suspect from which it is asked about although models lean on it in part alone."""
ASKED_STRENGTH_OF_OTHERS = 0.1
"""Least strength of such a suspect, and of one on whose column balanced accuracy rests by far most."""
ASKED_STRENGTH = 0.25
"""Strength of a suspect from which it is asked about although its balance is not worth its cost."""
LEAST_GAIN_OF_ENTRY = 0.01
"""Gain of an entry of a vector on held-out rows from which it may be asked about."""
WEAK = "weak"
WEAK_EXPLAINED = (
    f"{WEAK}: no answer is needed, as models hardly lean on it or its balance wins little; you can give one."
)
BALANCED = "balanced (not answered)"
BALANCED_EXPLAINED = (
    f"{BALANCED}: the weights balance it against the label though no answer names it. Only if it is honest "
    "signal is an answer needed: name it under `legitimate` then."
)
ENTRY = re.compile(r".+\[\d+\]")
"""Name of an entry of a vector, which says nothing."""
SEE_ROWS = "look at the report's example rows, first at those of low accuracy"
MAX_NAMES, MAX_NAME = 3, 40
MAX_FEW_ROWS = 5
"""Suspects that are named whose gain rests on few rows."""


def wins_much(suspect: Suspect) -> bool:
    """Return whether balancing a suspect would win much, and more than it costs."""
    return bool(suspect["gain"] >= max(LARGE_GAIN, suspect["cost"]))


def is_worth_an_answer(suspect: Suspect) -> bool:
    """Return whether models clearly lean on a suspect, or in part and its balance would win much.

    So do models of many columns that lean in part on each and by far most on one, whose accuracy rests on it.

    A word that goes with a class though the other words do not tell it is worth an answer whatever its
    figures: the models on which they were measured see no words. An entry of a vector whose balance wins
    nothing is not.
    """
    if is_idle_entry(suspect):
        return False
    low = wins_much(suspect) or suspect.get("leads")
    least = ASKED_STRENGTH_OF_OTHERS if low else ASKED_STRENGTH
    return bool(suspect.get("stands_out") or suspect["strength"] >= least)


def asked_suspects(found: FoundCues) -> list[Suspect]:
    """Return the open suspects that the user is asked about, the strongest first.

    Where the weights follow twins and slices, the strongest open suspect is one of them, but for entries of
    vectors whose balance wins nothing. What the weights balance without a name is none.
    """
    suspects = [one for one in found["suspects"] if is_open(one) and not is_idle_entry(one)]
    follows_twins = found["part"] and not found.get("balanced_columns") and not found.get("found_words")
    strongest = suspects[:1] if follows_twins else []
    return [one for one in suspects if one in strongest or is_worth_an_answer(one)]


def is_open(suspect: Suspect) -> bool:
    """Return whether a suspect has no answer, and the weights do not balance it without one."""
    return suspect["answer"] == "open" and not suspect.get("balanced")


def balanced_unnamed(found: FoundCues) -> list[Suspect]:
    """Return the suspects without an answer that the weights balance nevertheless, the strongest first."""
    return [one for one in found["suspects"] if one["answer"] == "open" and one.get("balanced")]


def answer_text(suspect: Suspect, found: FoundCues) -> str:
    """Return the answer of the recipe, ``open``, that it is balanced without one, or that none is needed."""
    if suspect in balanced_unnamed(found):
        return BALANCED
    is_weak = suspect["answer"] == "open" and suspect not in asked_suspects(found)
    return WEAK if is_weak else str(suspect["answer"])


def answers_explained(found: FoundCues) -> list[str]:
    """Return the meaning of the answers in the list that are none of the recipe."""
    shown = {answer_text(suspect, found) for suspect in found["suspects"]}
    return [
        text for answer, text in ((BALANCED, BALANCED_EXPLAINED), (WEAK, WEAK_EXPLAINED)) if answer in shown
    ]


def gain_basis(suspect: Suspect) -> str:
    """Return on how many rows a gain rests, and which rows are too few to be in it; empty if unknown."""
    rows, small = suspect.get("gain_rows"), suspect.get("small_cells", ())
    parts = [f"measured on {count(rows, 'row')}"] if rows else []
    if len(small) == 1:
        parts.append(f"without a class and side of {count(small[0], 'row')}, too few to tell")
    elif small:
        parts.append(f"without {len(small)} classes and sides of at most {max(small)} rows, too few to tell")
    return ", ".join(parts)


def few_rows_sentence(found: FoundCues) -> str:
    """Name the gains that rest on few rows, or leave some out; empty where none does."""
    few = [
        f"`{suspect['slice']}` ({gain_basis(suspect)})"
        for suspect in found["suspects"]
        if suspect.get("gain_rows", MIN_ROWS) < MIN_ROWS or suspect.get("small_cells")
    ]
    return f"Gains that say little: {first_of(few, MAX_FEW_ROWS, '; ')}." if few else ""


def balance_effect(suspect: Suspect) -> str:
    """Return what balancing a suspect does on held-out rows, as a predicate after "would"."""
    gain, basis = round(suspect["gain"], 2), gain_basis(suspect)
    verb = "lower" if gain < 0 else "raise"
    return f"{verb} the worst class and side by {abs(gain):.2f}{f' ({basis})' if basis else ''}"


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
