"""Words of scripts without spaces between them: overlapping pairs of characters stand for them.

Chinese, Japanese, Thai, Lao, Khmer and Burmese texts hold no mark where a word ends, and most of their words
have one or two characters. Search engines index pairs (Lucene's ``CJKBigramFilter``), which needs no
dictionary.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

CHARACTERS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\U00020000-\U0003ffff"  # rare Han
    "\u3040-\u309f\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Hiragana and Katakana
)
"""Characters of these scripts, as ranges within brackets of a regular expression."""
_RUN = re.compile(f"[{CHARACTERS}]+")
_STARTS = re.compile(f"[{CHARACTERS}]")
_WORD = rf"[^\W{CHARACTERS}]"


def separate_words(text: str) -> str:
    """Return a text with spaces around each pair of characters of scripts without spaces; others as it is.

    Examples
    --------
    >>> separate_words("iPhone很好用!"), separate_words("no change")
    ('iPhone 很好 好用 !', 'no change')

    """
    return _RUN.sub(_pairs, text)


def lower_words(text: str) -> str:
    """Return a text in lower case whose words are separated, to be cut into words by their spaces."""
    return separate_words(text.lower())


def mean_words(texts: Sequence[str]) -> float:
    """Return the mean number of words of some texts; 0 if there are none.

    Examples
    --------
    >>> mean_words(["so it is", "真的很好"])
    3.0

    """
    return sum(len(lower_words(text).split()) for text in texts) / max(len(texts), 1)


def phrase_pattern(phrase: str) -> str:
    """Return a regular expression that finds a word or phrase as a whole, however its words are spaced.

    A phrase that begins or ends with a script without spaces may stand within a run of its characters.

    Examples
    --------
    >>> [bool(re.search(phrase_pattern(word), "the iphone真的好")) for word in ("iphone", "phone", "真的")]
    [True, False, True]

    """
    words = phrase.split()
    if not words:
        return r"(?!)"
    before = "" if _STARTS.match(words[0]) else f"(?<!{_WORD})"
    after = "" if _STARTS.match(words[-1][-1]) else f"(?!{_WORD})"
    return before + r"\s+".join(map(re.escape, words)) + after


def _pairs(run: re.Match[str]) -> str:
    found = run.group()
    pairs = [found[start : start + 2] for start in range(max(len(found) - 1, 1))]
    return f" {' '.join(pairs)} "
