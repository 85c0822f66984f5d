"""Names of source columns as positions in the feature vector ``x``, and back.

A recipe names a column, one entry of a vector column (``image[48]``), or several columns by a pattern that
ends in ``*``. Where an operator such as ``embed`` makes the features, their only name is ``x``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from operators.base import FEATURES, OperatorError
from operators.cues.named import Named
from operators.cues.params import CueSlice, Reference, names_of

ENTRY = re.compile(r"(?P<column>.+)\[(?P<entry>\d+)\]")


@dataclass(frozen=True)
class FeatureColumns:
    """The columns of which the features consist, in their order.

    Attributes
    ----------
    names
        Source columns; only ``x`` where another operator makes the features.
    widths
        Features that each column gives.

    """

    names: tuple[str, ...]
    widths: tuple[int, ...]

    def positions(self, name: str) -> tuple[int, ...]:
        """Return the positions of a column, an entry of one, or the columns of a pattern.

        Raises
        ------
        OperatorError
            There is no such column or entry.

        """
        found: list[int] = []
        for column, entry in columns_of(name, self.names):
            index = self.names.index(column)
            start, width = sum(self.widths[:index]), self.widths[index]
            if entry is not None and entry >= width:
                raise OperatorError(
                    f"operators.cues: {name!r} asks for entry {entry} of {column!r}, which has the entries "
                    f"0 to {width - 1}."
                )
            found += range(start, start + width) if entry is None else [start + entry]
        return tuple(found)

    def name(self, position: int) -> str:
        """Return the name of a feature: its column, with the entry where the column is a vector."""
        start = 0
        for name, width in zip(self.names, self.widths, strict=True):
            if position < start + width:
                return name if width == 1 and name != FEATURES else f"{name}[{position - start}]"
            start += width
        return f"{FEATURES}[{position}]"

    def named(self, reference: Reference) -> Named:
        """Return the positions and the cut of a shortcut that the user names."""
        positions = tuple(p for name in names_of(reference) for p in self.positions(name))
        cut = reference.cut if isinstance(reference, CueSlice) else None
        if cut is not None and len(positions) > 1:
            raise OperatorError(
                f"operators.cues.spurious: a cut does not divide the {len(positions)} features of "
                f"{'+'.join(names_of(reference))!r}. Name one of them, such as {self.name(positions[0])}."
            )
        return Named(positions, cut)


def columns_of(name: str, known: Sequence[str]) -> list[tuple[str, int | None]]:
    """Return the columns that a name means, each with the entry if it names one.

    Raises
    ------
    OperatorError
        No feature column has this name; the message has the nearest one.

    """
    if name in known:
        return [(name, None)]
    if name.endswith("*"):
        matching = [column for column in known if column.startswith(name[:-1])]
        if matching:
            return [(column, None) for column in matching]
    entry = ENTRY.fullmatch(name)
    if entry is not None and entry["column"] in known:
        return [(entry["column"], int(entry["entry"]))]
    raise OperatorError(_unknown(name, known))


def check_references(references: Iterable[Reference], known: Sequence[str], key: str) -> None:
    """Raise OperatorError for the first name that is no feature column; ``key`` says where it stands."""
    for reference in references:
        for name in names_of(reference):
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


def _meanings(references: Iterable[Reference], known: Sequence[str]) -> Iterator[tuple[str, str, int | None]]:
    """Yield every name as written, with each column and entry that it means."""
    for reference in references:
        for name in names_of(reference):
            for column, entry in columns_of(name, known):
                yield name, column, entry


def _unknown(name: str, known: Sequence[str]) -> str:
    if tuple(known) == (FEATURES,):
        return (
            f"{name!r} is no feature. Another operator makes the features of this recipe, so they have no "
            f"names of their own: write {FEATURES}[0], {FEATURES}[1] and so on."
        )
    column = ENTRY.fullmatch(name)
    near = difflib.get_close_matches(column["column"] if column else name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"The features are: {', '.join(known[:30])}."
    return f"the features have no column {name!r}. {hint}"
