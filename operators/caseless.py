"""Texts in a form that is the same whatever the case and the Unicode form of their letters."""

from __future__ import annotations

from unicodedata import normalize


def caseless(text: str) -> str:
    """Return a text for comparison with others, after Unicode's compatibility caseless match; accents count.

    Examples
    --------
    >>> caseless("CAFE\\u0301") == caseless("caf\\u00e9"), caseless("Straße"), caseless("ﬁne café")
    (True, 'strasse', 'fine café')

    """
    return normalize("NFKC", normalize("NFKC", text).casefold())
