"""Words of texts as suspected shortcuts: what the entries of a text's vector cannot tell anybody.

The slices are the rows that contain a frequent word. They are scored and measured as those of features are,
with the models on the features, which never see a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from operators.arrays import Floats, Integers
from operators.base import ROW_ID, ShardReader
from operators.cues.params import CueWords
from operators.cues.search.slices import find_slices
from operators.cues.search.suspects import MeasuredSample, Suspect, measure_suspects
from operators.cues.words.mentions import texts_of
from operators.hashing import row_hashes, uniform

PURPOSE = "cues/texts"
TEXT_ROWS = 10_000
"""Rows of the sample whose texts are looked at."""
MAX_LENGTH = 2_000
"""Characters of a text that are looked at."""
MAX_WORDS = 2_000
SAME_ROWS = 0.95
"""Share of the texts with one of two words that have both, from which the words are one suspect."""
WORD = r"(?u)\b\w[\w'-]+\b"
Texts = Mapping[str, Sequence[str | None]]


@dataclass(frozen=True)
class SampledTexts:
    """Texts of some rows of the sample: row ids (n,) in increasing order, and the texts of each column."""

    ids: Integers
    texts: Texts


def text_file(rows: Path) -> Path:
    """Return the file of the texts beside a shard's file of sampled rows."""
    return rows.with_suffix(".parquet")


def write_texts(
    reader: ShardReader,
    shard: int,
    ids: Integers,
    columns: Sequence[str],
    share: float,
    seed: int,
    file: Path,
) -> None:
    """Write the texts of a share of a shard's sampled rows, drawn by a hash of their ids."""
    drawn = ids[uniform(row_hashes(ids, seed, PURPOSE)) < share]
    texts = {name: [_short(text) for text in texts_of(reader, shard, name, drawn)] for name in columns}
    table = {ROW_ID: pa.array(drawn, pa.int64())}
    pq.write_table(
        pa.table(table | {name: pa.array(found, pa.string()) for name, found in texts.items()}), file
    )


def read_texts(rows: Sequence[Path]) -> SampledTexts:
    """Return what :func:`write_texts` wrote beside the shards' files of sampled rows."""
    table = pa.concat_tables([pq.read_table(text_file(file)) for file in rows]).sort_by(ROW_ID)
    texts = {name: table[name].to_pylist() for name in table.column_names if name != ROW_ID}
    return SampledTexts(table[ROW_ID].to_numpy(), texts)


def list_word_suspects(
    found: SampledTexts, sample: MeasuredSample, p: Floats, known: Sequence[CueWords]
) -> list[tuple[CueWords, Suspect]]:
    """Return at most ``TOP`` words for each column of texts, the strongest first.

    Parameters
    ----------
    found
        Texts of some rows.
    sample, p
        The rows of the sample with the models' held-out probabilities (n, C), from ``measured_sample``.
    known
        Words that the recipe names already.

    """
    kept = np.flatnonzero(np.isin(sample.ids, found.ids))
    rows = sample.of_rows(kept)
    place = np.searchsorted(found.ids, rows.ids)
    listed: list[tuple[CueWords, Suspect]] = []
    for column, texts in found.texts.items():
        words, occurs = frequent_words([texts[i] for i in place])
        answered = {word.casefold() for one in known if one.column == column for word in one.words}
        skip = frozenset(k for k, word in enumerate(words) if word in answered)
        slices = find_slices(occurs, rows.y, p[kept], skip)
        suspects = measure_suspects(slices, replace(rows, X=occurs, Z=occurs))
        for first, *same in _of_the_same_rows(suspects, occurs):
            found_words = tuple(words[one.feature] for one in (first, *same))
            listed.append((CueWords(column=column, words=found_words), first))
    return sorted(listed, key=lambda item: -item[1].strength)


def _of_the_same_rows(suspects: Sequence[Suspect], occurs: npt.NDArray[np.float32]) -> list[list[Suspect]]:
    """Return the suspects, the strongest first, those together whose words occur in the same texts."""
    found: list[list[Suspect]] = []
    for one in suspects:
        inside = occurs[:, one.feature] > 0
        for group in found:
            other = occurs[:, group[0].feature] > 0
            if np.count_nonzero(inside & other) >= SAME_ROWS * np.count_nonzero(inside | other):
                group.append(one)
                break
        else:
            found.append([one])
    return found


def frequent_words(texts: Sequence[str | None]) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Return the most frequent words, and which texts contain each, (n, words) of 0 and 1."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(
        binary=True,
        lowercase=False,
        preprocessor=str.casefold,
        token_pattern=WORD,
        max_features=MAX_WORDS,
        dtype=np.float32,
    )
    try:
        occurs = counter.fit_transform([text or "" for text in texts])
    except ValueError:  # there is no word
        return [], np.zeros((len(texts), 0), np.float32)
    return counter.get_feature_names_out().tolist(), occurs.toarray()


def _short(text: str | None) -> str | None:
    return None if text is None else text[:MAX_LENGTH]
