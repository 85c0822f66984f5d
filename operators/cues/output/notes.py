"""Sentences beside the verdict on the content of ``suspects.json``.

They speak of limits and wrong labels, of classes without a figure, and of names that are not balanced as
meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectors.foundation.messages import first_of, shorten
from operators.counts import count
from operators.cues.output.record import FoundCues
from operators.metrics.group_scores import MAX_NAMES, MIN_ROWS

NOTABLE_SHRINKAGE = 0.05
"""Part by which limits shrink the factors of a class from which it is said."""


def undivided_sentence(found: FoundCues) -> str:
    """Say which named shortcuts divide no rows."""
    undivided = [f"`{name}`" for name in found["undivided"]]
    return (
        f"The recipe names {' and '.join(undivided)} as spurious, but no usable cut divides the rows there, "
        "so that nothing is balanced against the label for it."
    )


def limit_sentence(found: FoundCues) -> str:
    """Say how far the least share of a class holds the weights back; empty where it hardly does."""
    trusted = [trust for trust in found.get("trust", ()) if trust > 0]
    if not found.get("blend") or "trust" not in found:
        return ""
    if not trusted:
        return "The limits leave nothing of that but class balance (`min_effective_share`)."
    if 1 - min(trusted) < NOTABLE_SHRINKAGE:
        return ""
    return (
        f"In at least one class the factors are shrunk by {1 - min(trusted):.0%}, so that the class does "
        "not rest on few of its rows (`min_effective_share`)."
    )


def wrong_labels_sentence(found: FoundCues) -> str:
    """Say how many rows that break the shortcut may have wrong labels; empty where none seem to have."""
    by_class: Mapping[str, Sequence[float]] = found.get("wrong_labels", {})
    if not by_class:
        return ""
    rows, wrong = (sum(counts[k] for counts in by_class.values()) for k in (0, 1))
    ordered = sorted(by_class.items(), key=lambda item: -item[1][1] / item[1][0])
    listed = [
        f"{n_wrong / n:.0%} of {count(int(n), 'row')} of class {shorten(name)}"
        for name, (n, n_wrong) in ordered
    ]
    return (
        f"By what the other columns say, about {wrong / rows:.0%} of the sampled rows that break it look "
        f"like rows of other classes ({first_of(listed, MAX_NAMES)}): their labels are wrong, or they are "
        "unusual for their class. Look at some of them. Rows that look like their class carry the weight "
        "there, and in the following figures rows count by the probability that their label is right."
    )


def left_out_warning(rows: Mapping[str, int]) -> str:
    """Say that no figure speaks for some classes, and what to do.

    Parameters
    ----------
    rows
        Rows of each class that is in no figure of the trade-off, among those that operators learn from; at
        least one class.

    """
    listed = first_of([f"{shorten(name)} ({count(n, 'row')})" for name, n in rows.items()], MAX_NAMES)
    begin = f"the class {listed} has" if len(rows) == 1 else f"the classes {listed} have"
    it = "it" if len(rows) == 1 else "them"
    return (
        f"{begin} fewer than {MIN_ROWS} rows to learn from: no figure of the worst class or group speaks for "
        f"{it}. Add rows, lower split.validation and split.test, or join {it} with "
        f"another class (source.label_map). `operators.weights: {{min_class_rows: {min(rows.values())}, "
        f"class_strength: 1}}` gives {it} the full share of a class, which costs the other classes as far as "
        "models cannot tell them apart."
    )


def word_notes(found: FoundCues) -> list[str]:
    """Return sentences on words of the recipe that cannot be balanced as meant."""
    return [f"Words that the recipe names: {sentence}" for sentence in found.get("unclear", ())]


def ineffective_answers(found: FoundCues) -> list[str]:
    """Return sentences on names of the recipe that are not balanced as meant, with the remedy."""
    if notes := word_notes(found):
        return notes
    listed = "`rowsieve cues OUTPUT` lists features and words that divide the rows."
    return [f"{undivided_sentence(found)} {listed}"] if found.get("undivided") else []


def listed(names: Sequence[str], conjunction: str = "and") -> str:
    """Return names as a sentence has them: `a`, `a and b` or `a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} {conjunction} {last}" if first else last
