"""Inputs of many rows on several threads: images are decoded and texts divided into tokens at the same time.

A GPU waits for this: on one thread it took four fifths of the time and more (``tests/benchmarks/README.md``).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from operators.threads import available_threads, in_threads

Prepared = NDArray[Any] | ValueError
"""A row's input, or why it has none."""
NO_WORD = "is a text without a word"


def attempt(prepare: Callable[[Any], NDArray[Any]], value: Any) -> Prepared:
    """Return ``prepare(value)``, or the ValueError that it raises."""
    try:
        return prepare(value)
    except ValueError as error:
        return error


def prepare_in_threads(prepare: Callable[[Any], NDArray[Any]], values: Sequence[Any]) -> list[Prepared]:
    """Return the outcome of ``attempt`` for each value, computed on ``available_threads`` threads.

    Parameters
    ----------
    prepare : lets other threads run for most of its time, as Pillow does; it may silence warnings.
    values : its arguments.
    """
    with warnings.catch_warnings():  # they are the process's: what threads leave of them ends here
        return in_threads(partial(attempt, prepare), values)


def check_text(value: Any) -> None:
    """Raise ValueError for a value that is not text."""
    if not isinstance(value, str):
        raise ValueError(f"is {type(value).__name__}, not text")


def prepare_texts(
    tokenizer: Any, padded: Callable[[list[int]], NDArray[Any]], values: Sequence[Any]
) -> list[Prepared]:
    """Return ``padded`` of the token ids of each text, or the reason for which it has none.

    Parameters
    ----------
    tokenizer : a ``tokenizers.Tokenizer``.
    padded : makes a row's input of its ids, or raises ValueError.
    values : texts; what is not text is refused.
    """
    texts = [value if isinstance(value, str) else "" for value in values]

    def finish(value: Any, ids: list[int]) -> NDArray[Any]:
        check_text(value)
        return padded(ids)

    return [
        attempt(partial(finish, value), ids)
        for value, ids in zip(values, token_ids(tokenizer, texts), strict=True)
    ]


def token_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each text, computed on ``available_threads`` threads.

    Parameters
    ----------
    tokenizer : a ``tokenizers.Tokenizer``, which cuts the texts as it is set.
    texts : any number of them.
    """
    # Its own threads would be as many as the machine has cores, whatever Ray gives this process.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    size = max(1, -(-len(texts) // available_threads()))
    parts = [texts[start : start + size] for start in range(0, len(texts), size)]

    def encode(part: Sequence[str]) -> list[list[int]]:
        return [found.ids for found in tokenizer.encode_batch_fast([*part])]

    return [ids for part in in_threads(encode, parts) for ids in part]
