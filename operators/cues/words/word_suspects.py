"""Words of texts as suspected shortcuts: what the entries of a text's vector cannot tell anybody.

The slices are the rows that contain a frequent word. They are scored and measured as those of features are,
with the models on the features, which never see a word. A word that goes with a class in most texts is listed
even where these models make no more mistakes without it, if the other words look as they do beside a
shortcut: models that see words can lean on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from operators.arrays import Floats
from operators.caseless import caseless
from operators.cues.named.references import FeatureColumns
from operators.cues.params import CueWords
from operators.cues.search.ramps import LEAST_PART
from operators.cues.search.same_rows import occur_together
from operators.cues.search.slices import find_slices
from operators.cues.search.suspects import MeasuredSample, Suspect, measure_suspects
from operators.cues.words.shard_texts import SampledTexts
from operators.cues.words.word_shortcuts import judge_word_families
from operators.unspaced_scripts import separate_words

MAX_WORDS = 2_000
WORD = r"(?u)\b\w[\w'-]+\b"


def list_word_suspects(
    found: SampledTexts, sample: MeasuredSample, p: Floats, columns: FeatureColumns
) -> list[tuple[CueWords, Suspect]]:
    """Return at most ``TOP`` words for each column of texts, the strongest first, and those that stand out.

    Parameters
    ----------
    found
        Texts of some rows.
    sample, p
        The rows of the sample with the models' held-out probabilities (n, C), from ``measured_sample``.
    columns
        Columns of the features, with the words that the recipe names already.

    """
    kept = np.flatnonzero(np.isin(sample.ids, found.ids))
    rows = sample.of_rows(kept)
    place = np.searchsorted(found.ids, rows.ids)
    others = rows.features[:, columns.beside_entries_of(found.texts)]
    listed: list[tuple[CueWords, Suspect]] = []
    for column, texts in found.texts.items():
        words, occurs = frequent_words([texts[i] for i in place])
        answered = columns.named_words(column)
        skip = frozenset(k for k, word in enumerate(words) if word in answered)
        slices = find_slices(occurs, rows.y, p[kept], skip)
        families = judge_word_families(
            words, occurs, rows.y, rows.ids, others=others, answered=answered, seed=sample.seed
        )
        always = {words.index(word) for one in families if one.doubt() >= LEAST_PART for word in one.words}
        measured = replace(rows, X=occurs, Z=occurs)
        for one in measure_suspects(slices, measured, always=always, same=occur_together):
            found_words = tuple(words[feature] for feature in (one.feature, *one.same))
            suspect = replace(one, same=(), stands_out=one.feature in always)
            listed.append((CueWords(column=column, words=found_words), suspect))
    return sorted(listed, key=lambda item: -item[1].strength)


def _separated(text: str) -> str:
    return separate_words(caseless(text))


def frequent_words(texts: Sequence[str | None]) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Return the most frequent words, and which texts contain each, (n, words) of 0 and 1."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(
        binary=True,
        lowercase=False,
        preprocessor=_separated,
        token_pattern=WORD,
        max_features=MAX_WORDS,
        dtype=np.float32,
    )
    try:
        occurs = counter.fit_transform([text or "" for text in texts])
    except ValueError:  # there is no word
        return [], np.zeros((len(texts), 0), np.float32)
    return counter.get_feature_names_out().tolist(), occurs.toarray()
