"""Fit where words of texts are found to carry a shortcut: they are balanced as if the user had named them.

Their part is smaller by the trust in them, and unlike a name they are left out if the worst group is not
better for it on held-out rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from operators.arrays import Floats, Integers, Mask
from operators.class_shares import counted_classes
from operators.cues.models.cross_fitting import cross_fit_halves
from operators.cues.models.draws import Split, halves
from operators.cues.models.linear import Scaler, class_balance, with_directions
from operators.cues.named.references import FeatureColumns
from operators.cues.params import CueWords
from operators.cues.robust_weights import fit
from operators.cues.search.ramps import LEAST_PART, ramp
from operators.cues.settings import CueSettings, Named
from operators.cues.state import CueState
from operators.cues.words.mentions import fit_directions
from operators.cues.words.shard_texts import SampledTexts
from operators.cues.words.word_shortcuts import WordShortcut, find_word_shortcuts
from operators.cues.words.word_suspects import frequent_words

TOLD = (0.55, 0.62)
"""Area under the ROC curve, within the classes, of held-out models of the words: below it no model can lean
on the words, as the features do not tell them."""
SIDE_L2 = 1e-2
"""Ridge penalty of these models."""


@dataclass(frozen=True)
class FoundWords:
    """Words that carry a shortcut, and what follows from them.

    Attributes
    ----------
    sets
        The words, those of one shortcut together.
    gate
        Trust in them, in [.5, 1]: the least one.
    directions
        A linear function of the raw features for each, shape (d + 1, k): rows with the words are above 0.
    found
        What the words are judged by, in the order of ``sets``.
    ids
        Row ids (m,) of the texts that were looked at, in the order of ``found[k].inside``.

    """

    sets: tuple[CueWords, ...]
    gate: float
    directions: Floats
    found: tuple[WordShortcut, ...]
    ids: Integers

    def marks(self, raw: Floats, ids: Integers) -> Mask:
        """Return which rows (n,) have the words of each set, (n, k): by the direction where no text is known.

        ``raw`` are the features (n, d) of the rows with these ids, which increase.
        """
        told = with_directions(raw, self.directions)[:, raw.shape[1] :] > 0
        told[np.isin(ids, self.ids)] = np.column_stack([one.inside for one in self.found])
        return np.asarray(told)

    def record(self) -> list[dict[str, Any]]:
        """Return the words with their contrast and their judgement, as plain values."""
        return [
            {**one.model_dump(mode="json"), "contrast": word.contrast, **vars(word.judged)}
            for one, word in zip(self.sets, self.found, strict=True)
        ]


def find_words(
    sampled: SampledTexts,
    X: Floats,
    y: Integers,
    ids: Integers,
    columns: FeatureColumns,
    s: CueSettings,
) -> FoundWords | None:
    """Return the words of texts that carry a shortcut, or None.

    Parameters
    ----------
    sampled
        Texts of some rows.
    X, y, ids
        Raw features (n, d), labels (n,), row ids (n,) of all rows of the sample.
    columns
        Columns of the features, with the words that the recipe names.
    s
        Seed and penalty.

    """
    counted = counted_classes(np.bincount(y))[y]  # one text of a rare class has all of its words
    kept = np.flatnonzero(np.isin(ids, sampled.ids) & counted)
    place = np.searchsorted(sampled.ids, ids[kept])
    others = columns.beside_entries_of(sampled.texts)
    Z = Scaler.from_rows(X[kept][:, others]).apply(X[kept][:, others]) if len(others) else None
    sets, found = list[CueWords](), list[WordShortcut]()
    for column, texts in sampled.texts.items():
        words, occurs = frequent_words([texts[i] for i in place])
        known = columns.named_words(column)
        judged = find_word_shortcuts(words, occurs, y[kept], ids[kept], others=Z, answered=known, seed=s.seed)
        sets += [CueWords(column=column, words=one.words) for one in judged]
        found += judged
    return _learnable(sets, found, X[kept], y[kept], ids[kept], s) if found else None


def _learnable(
    sets: Sequence[CueWords],
    found: Sequence[WordShortcut],
    X: Floats,
    y: Integers,
    ids: Integers,
    s: CueSettings,
) -> FoundWords | None:
    """Return those of the words that the features tell and that are trusted by half at least."""
    Z, half = Scaler.from_rows(X).apply(X), halves(ids, s.seed, Split.WORDS)
    trust = [one.gate() * ramp(_area_within(one.inside, Z, y, half), *TOLD) for one in found]
    kept = [k for k, value in enumerate(trust) if value >= LEAST_PART]
    if not kept:
        return None
    chosen = tuple(found[k] for k in kept)
    told = fit_directions(X, np.column_stack([one.inside for one in chosen]), ids, s.seed, s.l2)
    return FoundWords(
        tuple(sets[k] for k in kept), min(trust[k] for k in kept), told.coefficients, chosen, ids
    )


def _area_within(inside: Mask, Z: Floats, y: Integers, half: Integers) -> float:
    """Return the area under the ROC curve of held-out models of a mark, mean over classes; .5 without any.

    A model of all classes would tell the mark by the label.
    """
    from sklearn.metrics import roc_auc_score

    areas = []
    for c in np.unique(y):
        rows = y == c
        mark = inside[rows].astype(np.int64)
        if min(np.bincount(mark[half[rows] == h], minlength=2).min() for h in (0, 1)) == 0:
            continue
        p = cross_fit_halves(Z[rows], mark, half[rows], class_balance(mark, 2), 2, l2=SIDE_L2)
        areas.append(float(roc_auc_score(mark, p[:, 1])))
    return float(np.mean(areas)) if areas else 0.5


def fit_with_words(
    words: FoundWords, X: Floats, raw: Floats, y: Integers, ids: Integers, s: CueSettings, counts: Integers
) -> tuple[CueState, Floats] | None:
    """Return the state that balances the words, and the features with one for each set; None without a gain.

    What the search finds is mostly the same shortcut in other features: it has a part beside the words only
    where the worst group is no better for these alone.

    Parameters
    ----------
    words
        From :func:`find_words`.
    X
        Features (n, m), with those of words that the recipe names.
    raw, y, ids
        Features without these (n, d), labels (n,), row ids (n,).
    s
        Settings without names.
    counts
        Rows of each class in the whole table, shape (C,).

    """
    extended = np.hstack([X, with_directions(raw, words.directions)[:, raw.shape[1] :]])
    named = tuple(Named((X.shape[1] + k,), 0.0) for k in range(len(words.sets)))
    settings = replace(s, spurious=named, named_share=s.named_share * words.gate, only_if_better=True)
    for beside in (0.0, s.searched_share):
        tried = replace(settings, searched_share=beside)
        state = fit(extended, y, ids, tried, class_counts=counts, n_classes=len(counts))
        if state.named is not None and state.blend > 0:
            return state, extended
    return None
