"""Words of texts that carry a shortcut, judged by the other words of the texts.

A word, or several in one place of the text, that goes with a class more than all the other words do
together is a shortcut if the other words do not tell, given the label, whether it occurs (``independence``):
a word of the class belongs to sentences that have others of its kind. Where the other words tell the label as
well as these do, nothing says which of the two is the shortcut. A label that one word decides honestly, in
texts that hardly tell it otherwise, looks like a shortcut to all measurements here. Measured in
tests/paper/REAL.md, eleventh study.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from operators.arrays import Floats, Integers, Mask
from operators.cues.search.independence import Independence, independence, rarer_side, support_of
from operators.cues.search.ramps import SINGLE_RAMPS, ramp

WORD_RAMPS = {
    "contrast": (0.5, 0.6),
    "lead": (0.0, 0.1),
    "minority": SINGLE_RAMPS["slice_minority"],
    "label_accuracy": SINGLE_RAMPS["slice_label_accuracy"],
}
"""Value at which words are not a shortcut, and value at which they are taken for one, if the other words
support it (``independence.support_of``)."""
MIN_CONTRAST = 0.2
"""Contrast of the first word of a family. The strongest words of plain texts have .1 to .5."""
MAX_TRIED = 20
"""First words that are looked at, the strongest ones."""
MIN_ROWS = 20
"""Texts with and without a word, below which it is left out."""
SAME_FAMILY = 0.3
"""Correlation within a class from which two words replace each other, or stand in one phrase."""
SAME_PHRASE = 0.99
"""Share of the texts of a family from which a word that these contain is part of its phrase."""
MIN_RISE = 0.02
"""Contrast that a further word has to add."""
L2 = 1e-2
"""Ridge penalty of the models that judge, with as many words as features."""


@dataclass(frozen=True)
class WordShortcut:
    """Words that replace each other.

    Attributes
    ----------
    words
        The words, the strongest first.
    inside
        Which texts contain one of them, shape (n,).
    contrast
        Share of the texts with one of them in the class that has most of these, less the share in the class
        that has most of the others; of words that go with several classes, between the two groups of classes.
    judged
        What models say that see neither these words nor those that belong to them. For words that go with
        several classes these are one class, and the others one.
    classes
        Number of classes that the words go with.

    """

    words: tuple[str, ...]
    inside: Mask
    contrast: float
    judged: Independence
    classes: int = 1

    def gate(self) -> float:
        """Return how far the words are trusted to carry a shortcut, in [0, 1]: the product of the ramps."""
        judged = self.judged
        values = {
            "contrast": self.contrast,
            "lead": self.contrast - judged.label_accuracy,
            "minority": judged.minority,
            "label_accuracy": judged.label_accuracy,
        }
        parts = [ramp(values[name], *limits) for name, limits in WORD_RAMPS.items()]
        return float(np.prod([*parts, self.support()]))

    def doubt(self) -> float:
        """Return how far the user is to be asked about the words, in [0, 1].

        Words that go with several classes have to say more than the others do, as those that open the gate:
        many words of content go with some of the classes.
        """
        return self.support() if self.classes == 1 else self.gate()

    def support(self) -> float:
        """Return how far the other words are compatible with a shortcut, in [0, 1] (``support_of``)."""
        return support_of(self.judged)


def find_word_shortcuts(
    words: Sequence[str],
    occurs: Floats,
    y: Integers,
    ids: Integers,
    *,
    others: Floats | None = None,
    answered: Collection[str] = (),
    seed: int = 0,
) -> list[WordShortcut]:
    """Return the families of :func:`judge_word_families` with a gate above 0: these carry a shortcut."""
    families = judge_word_families(words, occurs, y, ids, others=others, answered=answered, seed=seed)
    return [one for one in families if one.gate() > 0]


def judge_word_families(
    words: Sequence[str],
    occurs: Floats,
    y: Integers,
    ids: Integers,
    *,
    others: Floats | None = None,
    answered: Collection[str] = (),
    seed: int = 0,
) -> list[WordShortcut]:
    """Return the words that go with a class, or several, in most texts, and what the other words say of them.

    Parameters
    ----------
    words, occurs
        Words, and which texts contain each, 0 or 1, shape (n, words).
    y, ids
        Labels (n,) and row ids (n,), which decide the halves.
    others
        Standardised features of other columns, shape (n, d), which judge beside the words.
    answered
        Words of which the user has said what they are; no family has one of them.
    seed
        Decides the halves.

    Returns
    -------
    Families of words with a contrast above .5, the lower limit of ``WORD_RAMPS``, the strongest first. No two
    have a word in common.

    """
    many = (occurs.sum(axis=0) >= MIN_ROWS) & ((1 - occurs).sum(axis=0) >= MIN_ROWS)
    frequent = np.flatnonzero(many).tolist()
    occurs = np.ascontiguousarray(occurs[:, frequent], np.float32)
    shares = np.array([occurs[y == c].mean(axis=0) for c in np.unique(y)])
    if len(shares) < 2:
        return []
    poles = _poles(shares)
    contrast = _contrast(shares, poles)
    known = {k for k, word in enumerate(frequent) if words[word] in answered}
    judges = occurs if others is None else np.hstack([occurs, others.astype(np.float32)])
    done, found = set[int](), list[WordShortcut]()
    for first in np.argsort(-contrast, kind="stable")[:MAX_TRIED].tolist():
        if contrast[first] < MIN_CONTRAST or first in done:
            continue
        family, inside = _family(first, occurs, y, shares, poles)
        belonging = _belonging(family, inside, occurs, y)
        divides = poles[:, belonging] == poles[:, [first]]
        done.update(np.array(belonging)[divides.all(axis=0) | ~divides.any(axis=0)].tolist())
        share = np.array([[inside[y == c].mean()] for c in np.unique(y)])
        pole = _poles(share)
        reached = _contrast(share, pole)[0]
        if reached <= WORD_RAMPS["contrast"][0] or known & set(belonging):
            continue
        label = y if pole.sum() == 1 else pole[np.unique(y, return_inverse=True)[1], 0].astype(np.int64)
        judged = independence(rarer_side(inside, label), judges, label, ids, belonging, seed=seed, l2=L2)
        named = tuple(words[frequent[k]] for k in family)
        found.append(WordShortcut(named, inside, float(reached), judged, int(pole.sum())))
    return found


def _poles(shares: Floats) -> Mask:
    """Return with which classes each word goes, of shares (C, words): those above the largest step.

    The step is that between neighbours of the classes' shares in their order, so that one class, or several,
    such as two of four, have most texts with the word.
    """
    ranked = np.sort(shares, axis=0)
    step = np.diff(ranked, axis=0).argmax(axis=0)
    return np.asarray(shares > np.take_along_axis(ranked, step[None], axis=0))


def _contrast(shares: Floats, poles: Mask) -> Floats:
    """Return the least share (C, words) of the classes that a word goes with, less the largest of the others.

    Without a class of either kind it is below 0.
    """
    least = np.where(poles, shares, 2.0).min(axis=0)
    return np.asarray(np.where(least > 1, 0.0, least) - np.where(poles, -1.0, shares).max(axis=0))


def _family(first: int, occurs: Floats, y: Integers, shares: Floats, poles: Mask) -> tuple[list[int], Mask]:
    """Return the first word with those that stand in its place and raise the contrast; the texts with any.

    Words of its classes that go along with it do not count: wrong labels alone let honest words do so.
    """
    inside, pole = occurs[:, first] > 0, poles[:, [first]]
    contrast = _contrast(shares, np.broadcast_to(pole, shares.shape))
    family, reached = [first], float(contrast[first])
    alike = np.flatnonzero((-_correlations(inside, occurs, y)).max(axis=0) > SAME_FAMILY)
    alike = alike[(poles[:, alike] == pole).all(axis=0) & (alike != first)]
    for k in alike[np.argsort(-contrast[alike], kind="stable")].tolist():
        joined = inside | (occurs[:, k] > 0)
        share = np.array([[joined[y == c].mean()] for c in np.unique(y)])
        if _contrast(share, pole)[0] > reached + MIN_RISE:
            family, inside, reached = [*family, k], joined, float(_contrast(share, pole)[0])
    return family, inside


def _belonging(family: Sequence[int], inside: Mask, occurs: Floats, y: Integers) -> list[int]:
    """Return the words that say whether a text is inside: replacements, parts of a phrase, alternatives."""
    together = inside.astype(np.float32) @ occurs
    apart = (together == 0) & (occurs.mean(axis=0) * inside.sum() >= MIN_ROWS)
    phrase = together >= SAME_PHRASE * inside.sum()
    same = np.abs(_correlations(inside, occurs, y)).max(axis=0) > SAME_FAMILY
    return sorted({*family, *np.flatnonzero(apart | phrase | same).tolist()})


def _correlations(inside: Mask, occurs: Floats, y: Integers) -> Floats:
    """Return the correlation within each class of a mark with each word, shape (C, words).

    It is 0 in classes in which either divides fewer than 20 texts from the others.
    """
    found = []
    for c in np.unique(y):
        rows, mark = occurs[y == c], inside[y == c].astype(np.float32)
        n, a, b = len(mark), float(mark.sum()), rows.sum(axis=0, dtype=np.float64)
        spread = np.maximum(a / n * (1 - a / n) * (b / n) * (1 - b / n), 1e-12)
        correlation = ((mark @ rows) / n - (a / n) * (b / n)) / np.sqrt(spread)
        counted = np.minimum(np.minimum(b, n - b), min(a, n - a)) >= MIN_ROWS
        found.append(np.where(counted, correlation, 0.0))
    return np.array(found)
