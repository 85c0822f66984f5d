"""Checks of the names of a recipe against the columns of the source, before any feature is known.

The plan asks them, so that a wrong name ends no run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from operators.base import OperatorError
from operators.cues.named.references import columns_of
from operators.cues.params import Reference, names_of


def check_references(
    references: Iterable[Reference], known: Sequence[str], key: str, label: str | None = None
) -> None:
    """Raise OperatorError for the first name that is not a feature column; ``key`` says where it stands."""
    for reference in references:
        for name in names_of(reference):
            if name == label:
                raise OperatorError(
                    f"operators.cues.{key}: {name!r} is the label. Name columns that may carry a shortcut "
                    "to it."
                )
            try:
                columns_of(name, known)
            except OperatorError as error:
                raise OperatorError(f"operators.cues.{key}: {error}") from None


def check_answers(
    spurious: Iterable[Reference], legitimate: Iterable[Reference], known: Sequence[str]
) -> None:
    """Raise OperatorError if a feature is named as spurious and as legitimate, also by pattern or entry."""
    for (name, column, entry), (other, other_column, other_entry) in product(
        _meanings(spurious, known), _meanings(legitimate, known)
    ):
        if column == other_column and (entry is None or other_entry in (None, entry)):
            raise OperatorError(
                f"operators.cues: {name!r} under spurious and {other!r} under legitimate both name "
                f"features of {column!r}. Remove one of the two."
            )


def _meanings(
    references: Iterable[Reference], known: Sequence[str]
) -> Iterator[tuple[str, str, int | str | None]]:
    """Yield every name as written, with each column and entry that it means."""
    for reference in references:
        for name in names_of(reference):
            for column, entry in columns_of(name, known):
                yield name, column, entry
