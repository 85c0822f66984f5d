"""Words of a text as a named shortcut: which rows contain them, and the direction that tells.

Weights are made from features alone, and a text is usually a vector by then. So each set of words becomes one
further feature, a linear function of the others that is fitted on the sample to tell the rows that contain
one of the words. What the features do not tell linearly, a linear probe on them cannot rely on either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from connectors.foundation.messages import nearest
from operators.arrays import Floats, Integers
from operators.caseless import caseless
from operators.cues.models.draws import Split, halves
from operators.cues.models.linear import Scaler, fit_softmax
from operators.cues.named.recipe_text import yaml_reference
from operators.cues.params import CueWords
from operators.unspaced_scripts import phrase_pattern

CLEAR = 0.9
"""Held-out balanced accuracy of a direction below which the user is warned."""
Mentions = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Directions:
    """The further features of a sample.

    Attributes
    ----------
    coefficients
        Weights of the raw features, and the offset in the last row, float64 of shape (d + 1, k). Rows that
        contain the words are above 0. A column of zeros where the sample holds too few rows of one kind.
    accuracy
        Balanced accuracy on held-out rows, shape (k,); NaN for such a column.

    """

    coefficients: Floats
    accuracy: Floats


def contains(texts: Sequence[str | None], words: Sequence[str]) -> Mentions:
    """Return which texts contain one of the words or phrases, whatever the case or Unicode form, shape (n,).

    Examples
    --------
    >>> contains(["A Kestrel lamp", "kestrels", None, "every  penny"], ["KESTREL", "every penny"]).tolist()
    [True, False, False, True]

    """
    pattern = re.compile("|".join(phrase_pattern(caseless(word)) for word in words))
    return np.array([text is not None and pattern.search(caseless(text)) is not None for text in texts], bool)


def by_set(mentions: Mentions, sets: Sequence[CueWords]) -> Mentions:
    """Return which rows contain a word of each set, shape (n, k), from ``shard_texts.read_mentions``."""
    return np.column_stack([part.any(axis=1) for part in _parts(mentions, sets)])


def _parts(mentions: Mentions, sets: Sequence[CueWords]) -> list[Mentions]:
    """Return the columns (n, words) of each set."""
    ends = np.cumsum([len(one.words) for one in sets])
    return [mentions[:, end - len(one.words) : end] for end, one in zip(ends.tolist(), sets, strict=True)]


def fit_directions(X: Floats, mentions: Mentions, ids: Integers, seed: int, l2: float) -> Directions:
    """Fit a direction for each set of words on one half of the rows each, and take the mean of the two.

    The cut is where as many held-out rows lie above it as contain the words.

    Parameters
    ----------
    X
        Raw features (n, d).
    mentions
        Which rows contain each set of words, shape (n, k).
    ids
        Row ids (n,); they decide the halves.
    seed, l2
        As in ``CueSettings``.

    """
    scaler = Scaler.from_rows(X)
    Z, half = scaler.apply(X), halves(ids, seed, Split.WORDS)
    coefficients, accuracy = np.zeros((X.shape[1] + 1, mentions.shape[1])), np.full(mentions.shape[1], np.nan)
    for k, inside in enumerate(mentions.T):
        if min(len(np.unique(inside[half == h])) for h in (0, 1)) < 2:
            continue
        fits = [_direction(Z[half == h], inside[half == h], l2) for h in (0, 1)]
        scores = np.where(half == 0, _scores(fits[1], Z), _scores(fits[0], Z))
        cut = _cut(scores, int(inside.sum()))
        above = scores > cut
        accuracy[k] = float(np.mean([(above == inside)[inside == side].mean() for side in (False, True)]))
        mean = (fits[0] + fits[1]) / 2
        raw = mean[:-1] / scaler.scale.astype(float)
        coefficients[:-1, k] = raw
        coefficients[-1, k] = mean[-1] - cut - scaler.mean.astype(float) @ raw
    return Directions(coefficients, accuracy)


def absent_words(
    sets: Sequence[CueWords], mentions: Mentions, known: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield a sentence for each word that no row contains.

    Parameters
    ----------
    sets
        Words that the recipe names.
    mentions
        Which rows contain each word, shape (n, words), from ``shard_texts.read_mentions``.
    known
        Frequent words of columns of texts, for the nearest one.

    """
    for one, part in zip(sets, _parts(mentions, sets), strict=True):
        for word, occurs in zip(one.words, part.T, strict=True):
            if not occurs.any():
                hint = nearest(caseless(word), known.get(one.column, ()))
                yield (
                    f"no text of the column {one.column!r} contains {word!r} in {len(mentions):,} sampled "
                    f"rows.{hint or ' Correct or remove it.'}"
                )


def unclear_sets(sets: Sequence[CueWords], mentions: Mentions, directions: Directions) -> Iterator[str]:
    """Yield a sentence for each set of words that all rows or too few contain, or the features hardly tell.

    ``mentions`` has the shape (n, k), from :func:`by_set`.
    """
    n = len(mentions)
    counts = mentions.sum(axis=0).tolist()
    for one, count, accuracy in zip(sets, counts, directions.accuracy.tolist(), strict=True):
        if np.isnan(accuracy) and count:
            rows = "all" if count == n else f"{count:,} of"
            remedy = _separate_entries(one) if count > n / 2 and len(one.words) > 1 else ""
            yield f"{one.label} holds for {rows} {n:,} sampled rows: that leaves nothing to balance.{remedy}"
        elif accuracy < CLEAR:
            yield (
                f"the features tell the rows of which {one.label} from the others in only {accuracy:.0%} of "
                "held-out rows (50% by chance), and the weights balance no more than that."
            )


def _separate_entries(one: CueWords) -> str:
    """Return how to name the words of an entry that covers nearly all rows, as the recipe writes it."""
    entries = ", ".join(yaml_reference(CueWords(column=one.column, words=(word,))) for word in one.words[:2])
    return (
        " A row counts if its text contains any of the words: give words that go with different classes an "
        f"entry each, such as [{entries}]."
    )


def _direction(Z: Floats, inside: Mentions, l2: float) -> Floats:
    """Return the log-odds of the words as a linear function of standardised features, shape (d + 1,)."""
    coef = fit_softmax(Z, inside.astype(np.int64), np.ones(len(Z)), 2, l2=l2)
    return np.asarray(coef[:, 1] - coef[:, 0], np.float64)


def _scores(direction: Floats, Z: Floats) -> Floats:
    return np.asarray(Z.astype(np.float64) @ direction[:-1] + direction[-1])


def _cut(scores: Floats, inside: int) -> float:
    """Return a number that is exceeded by as many scores as rows are inside."""
    ordered = np.sort(scores)
    return float((ordered[-inside - 1] + ordered[-inside]) / 2)
