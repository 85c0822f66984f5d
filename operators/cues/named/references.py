"""Names of source columns as positions in the feature vector ``x``, and back.

A recipe names a column, one entry of a vector column (``image[48]``), or several columns by a pattern that
ends in ``*``. Where ``encode`` makes the features, a column means what it is encoded to, and a single feature
is named by its label, such as ``sex = Male``, and a slice as the suspects tell it, such as
``hired in Nov-Feb``. Where an operator such as ``embed`` makes the features, their
only name is ``x``. ``FeatureColumns.meaning`` alone decides between these; ``columns_of`` says the same of
columns before their features are known.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from connectors.foundation.messages import first_of, nearest
from operators.base import FEATURES, OperatorError
from operators.caseless import caseless
from operators.columns import is_meant
from operators.cues.params import CueSlice, CueWords, Reference, names_of
from operators.cues.settings import Named, SourceColumn
from operators.encode.words import OR_MISSING, LevelWords, NumberWords, Words, condition_of
from operators.encoded_features import Output
from operators.yaml_text import inline_yaml

ENTRY = re.compile(r"(?P<column>.+)\[(?P<entry>\d+)\]")
TWO_VALUES = re.compile(r"(?P<feature>.+) is [-+.\deE]+ \(not [-+.\deE]+\)")
"""The slice of a number that has two values, as the suspects tell it: it means the number itself."""
COMPARED = re.compile(r"(?P<entry>.+\[\d+\]) [<>]=? *[-+.\deE]+")
"""A slice of an entry of a vector."""
MAIN_ROLES = (("value", "part"), ("target",), ("category", "missing", "infrequent"))
"""Roles of the features that are balanced where a recipe names a column: the value (of a date, or a part of
it), else the class shares of its values, which a column of many infrequent values has, else the levels. The
levels of such a column hold all infrequent values as one."""
WORDS = (" =", " >", " <", " is ", " in ", " on ", " between ", " before ", " among ", " not ", " contains ")
"""Words that may follow the name of a column in the text of a slice."""


@dataclass(frozen=True)
class Meaning:
    """The features that a name means.

    Attributes
    ----------
    positions
        All features of the columns that are named, or the single feature.
    main
        Those of them that are balanced: of a column its value or its levels, without what ``encode`` adds to
        these, such as whether it is missing.
    cut
        Where the name is that of a slice, the cut of the feature; None for another name.

    """

    positions: tuple[int, ...]
    main: tuple[int, ...]
    cut: float | None = None


@dataclass(frozen=True)
class FeatureColumns:
    """The columns of which the features consist, in their order.

    Attributes
    ----------
    names
        Source columns; only ``x`` where another operator makes the features.
    widths
        Features that each column gives.
    outputs
        The features where ``encode`` makes them; else empty.
    words
        How cuts are told in words of the columns, by position; none for a feature in the column's own unit.
    mentions
        Words of texts, each of which is one more feature after the others (``mentions``).

    """

    names: tuple[str, ...]
    widths: tuple[int, ...]
    outputs: tuple[Output, ...] = ()
    words: Mapping[int, Words] = field(default_factory=dict)
    mentions: tuple[CueWords, ...] = ()

    @property
    def n_features(self) -> int:
        """The features of a row, without those that words of texts add."""
        return sum(self.widths)

    def meaning(self, name: str) -> Meaning:
        """Return what a name means: the first of these that there is.

        1. Columns: the one of this name, or those of a pattern.
        2. The feature with this label.
        3. An entry of a vector column.
        4. A slice in words, of the column with the longest name.

        Raises
        ------
        OperatorError
            There is no such column, feature, entry or slice.

        """
        if columns := [name] if name in self._ranges else whole_columns(name, self.names):
            places = [self._places(column) for column in columns]
            main = tuple(p for own in places for p in self._main(own))
            return Meaning(tuple(p for own in places for p in own), main)
        place = self._places_of_labels.get(name)
        cut = None
        if place is None and not self.outputs:
            place = self._entry(name)
        if place is None and (two := TWO_VALUES.fullmatch(name.removesuffix(OR_MISSING))):
            return self.meaning(two["feature"])
        if place is None:
            place, cut = self._slice(name)
        return Meaning((place,), (place,), cut)

    def _places(self, column: str) -> range:
        """Return the positions of a column's features. Raises OperatorError where ``encode`` makes none."""
        places = self._range(column)
        if self.outputs and not places:
            raise OperatorError(
                f"operators.cues: {column!r} is not used as a feature: it has one value in all rows or none, "
                "is an identifier, or `encode` drops it. Remove its name, or tell its kind by "
                f"`operators: {{encode: {{columns: {{{column}: categorical}}}}}}`."
            )
        return places

    def _range(self, column: str) -> range:
        """Return the positions of a column's features, if it has any."""
        return self._ranges[column]

    @cached_property
    def _ranges(self) -> Mapping[str, range]:
        """The positions of each column's features."""
        bounds = zip(self.names, self.widths, self._ends, strict=True)
        return {name: range(end - width, end) for name, width, end in bounds}

    def _main(self, places: range) -> list[int]:
        """Return those features of a column that are balanced where it is named."""
        for roles in MAIN_ROLES if self.outputs else ():
            if found := [place for place in places if self.outputs[place].role in roles]:
                return found
        return list(places)

    def _entry(self, name: str) -> int | None:
        """Return the position of an entry of a vector column; None for another name."""
        found = ENTRY.fullmatch(name)
        if found is None or found["column"] not in self._ranges:
            return None
        places, entry = self._places(found["column"]), int(found["entry"])
        if entry >= len(places):
            raise OperatorError(
                f"operators.cues: {name!r} asks for entry {entry} of {found['column']!r}, which has the "
                f"entries 0 to {len(places) - 1}."
            )
        return places[entry]

    def _slice(self, text: str) -> tuple[int, float]:
        """Return position and cut of a slice in words, such as ``hired in Nov-Feb``."""
        known = columns_of(text, self.names)[0][0]
        named = self._places(known)
        for column in sorted((one for one in self.names if text.startswith(one)), key=len, reverse=True):
            if found := self._in_words(text, self._range(column)):
                return found
        labels = ", ".join(repr(self.name(place)) for place in named[:30])
        raise OperatorError(
            f"operators.cues: there is no feature {text!r}, and no cut of one divides the rows so. "
            f"There are: {labels}. Slices are read as `rowsieve cues` prints them."
        )

    def _in_words(self, text: str, places: range) -> tuple[int, float] | None:
        """Return the first feature among ``places`` of which a cut divides the rows as the text says."""
        for place in places:
            words = self.words_of(place)
            condition = condition_of(text, words.source)
            cut = None if condition is None else words.parse(condition)
            if cut is not None:
                return place, cut
        return None

    def used(self) -> tuple[str, ...]:
        """Return the columns that give features."""
        return tuple(name for name, width in zip(self.names, self.widths, strict=True) if width)

    def entries_of(self, texts: Collection[str]) -> frozenset[int]:
        """Return the positions of the entries of vectors that stand for columns of texts."""
        if self.names == (FEATURES,):
            return frozenset(range(self.n_features)) if texts else frozenset()
        places = enumerate(self.outputs)
        return frozenset(place for place, one in places if one.source in texts and one.role == "entry")

    def beside_entries_of(self, texts: Collection[str]) -> list[int]:
        """Return the positions of all other features, in increasing order."""
        entries = self.entries_of(texts)
        return [place for place in range(self.n_features) if place not in entries]

    def named_words(self, text: str) -> frozenset[str]:
        """Return the words that the recipe names for a column of texts, as texts are compared."""
        return frozenset(caseless(word) for one in self.mentions if one.column == text for word in one.words)

    def source_columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns that ``encode`` turns into several features; the entries of vectors are none."""
        places = dict[str, list[int]]()
        for place, output in enumerate(self.outputs):
            if output.role != "entry":
                places.setdefault(output.source, []).append(place)
        return tuple(
            SourceColumn(tuple(own), tuple(p for p in own if self.outputs[p].role == "target"))
            for own in places.values()
            if len(own) > 1 or self.outputs[own[0]].role == "target"
        )

    def name(self, position: int) -> str:
        """Return the name of a feature: its column, with the entry where the column is a vector."""
        if position >= self.n_features:
            return self.mentions[position - self.n_features].label
        return self._labels[position]

    def source(self, position: int) -> str:
        """Return the column that a feature is made of, words of texts excepted."""
        return self.names[bisect_right(self._ends, position)]

    @cached_property
    def _ends(self) -> list[int]:
        """The position behind the last feature of each column."""
        return list(accumulate(self.widths))

    @cached_property
    def _labels(self) -> tuple[str, ...]:
        """The name of each feature, without those that words of texts add."""
        if self.outputs:
            return tuple(output.label for output in self.outputs)
        return tuple(
            name if width == 1 and name != FEATURES else f"{name}[{entry}]"
            for name, width in zip(self.names, self.widths, strict=True)
            for entry in range(width)
        )

    @cached_property
    def _places_of_labels(self) -> Mapping[str, int]:
        """The position of each name of a feature: of equal ones that of the column with the longest name."""
        columns = [name for name, width in zip(self.names, self.widths, strict=True) for _ in range(width)]
        found = dict[str, int]()
        for place in sorted(range(len(columns)), key=lambda p: len(columns[p]), reverse=True):
            found.setdefault(self._labels[place], place)
        return found

    def words_of(self, position: int) -> Words:
        """Return how cuts of a feature are told."""
        if position >= self.n_features:
            return LevelWords(self.mentions[position - self.n_features].column, self.name(position))
        return self.words.get(position) or NumberWords(self.name(position))

    def named(self, reference: Reference) -> Named:
        """Return the positions and the cut of a shortcut that the user names.

        A column of dates means whichever of its features the models lean on most: elapsed time, or a part. So
        does a column of numbers with gaps: its value, or whether it is missing; and one of many values: the
        share of one of several classes.
        """
        if isinstance(reference, CueWords):
            return Named((self.n_features + self.mentions.index(reference),), 0.0)
        meanings = [self.meaning(name) for name in names_of(reference)]
        if isinstance(reference, str) and meanings[0].cut is not None:
            return Named(meanings[0].main, meanings[0].cut)
        positions = tuple(p for one in meanings for p in one.main)
        cut = reference.cut if isinstance(reference, CueSlice) else None
        if len(positions) > 1 and self.outputs and all(self.outputs[p].kind == "datetime" for p in positions):
            elapsed = tuple(p for p in positions if self.outputs[p].role == "value")
            if cut is None:
                return Named(positions, one_of=True)
            positions = elapsed or positions
        if cut is None and len(positions) > 1 and self._are_shares(positions):
            return Named((*positions, *self._missing_of(positions[0])), one_of=True)
        if cut is None and isinstance(reference, str) and (gaps := self._gaps_of(positions)):
            return Named((*positions, *gaps), one_of=True)
        if cut is not None and len(positions) > 1:
            raise OperatorError(
                f"operators.cues.spurious: a cut does not divide the {len(positions)} features of "
                f"{'+'.join(names_of(reference))!r}. Name one of them, such as {self.name(positions[0])}."
            )
        if cut is not None:
            cut = self.words_of(positions[0]).cut(cut)
        return Named(positions, cut)

    def answered(self, reference: Reference) -> tuple[int, ...]:
        """Return the positions of the features that a reference answers for."""
        if isinstance(reference, CueWords):
            return self.named(reference).columns
        return tuple(place for name in names_of(reference) for place in self.meaning(name).positions)

    def _gaps_of(self, positions: tuple[int, ...]) -> tuple[int, ...]:
        """Return the feature that says whether a number is missing, where the positions are its value."""
        if len(positions) != 1 or not self.outputs or self.outputs[positions[0]].role != "value":
            return ()
        return self._missing_of(positions[0])

    def _are_shares(self, positions: tuple[int, ...]) -> bool:
        """Return whether the positions are the class shares of one column of many values."""
        own = [self.outputs[p] for p in positions] if self.outputs else []
        return all(one.role == "target" for one in own) and len({one.source for one in own}) == 1

    def _missing_of(self, position: int) -> tuple[int, ...]:
        """Return the features that say whether the column of a feature is missing, if there are any."""
        places, source = enumerate(self.outputs), self.outputs[position].source
        return tuple(p for p, one in places if one.source == source and one.role == "missing")


def whole_columns(name: str, known: Sequence[str]) -> list[str]:
    """Return the columns that a name means as a whole: the one of this name, else those of a pattern."""
    if name in known or not name.endswith("*"):
        return [name] if name in known else []
    return [column for column in known if is_meant(column, name)]


def columns_of(name: str, known: Sequence[str]) -> list[tuple[str, int | str | None]]:
    """Return the columns that a name means, each with the entry if it names one.

    Raises
    ------
    OperatorError
        No feature column has this name; the message has the nearest one.

    """
    if whole := whole_columns(name, known):
        return [(column, None) for column in whole]
    entry = ENTRY.fullmatch(name)
    if entry is not None and entry["column"] in known:
        return [(entry["column"], int(entry["entry"]))]
    compared = COMPARED.fullmatch(name) or TWO_VALUES.fullmatch(name)
    if compared is not None and ENTRY.fullmatch(compared[1]):
        return columns_of(compared[1], known)
    labelled = max((column for column in known if _is_label(name, column)), key=len, default=None)
    if labelled is not None:
        return [(labelled, name)]
    raise OperatorError(_unknown(name, known))


def _is_label(name: str, column: str) -> bool:
    """Return whether a name is the label of a feature that `encode` makes of a column."""
    rest = name.removeprefix(column)
    return rest != name and rest.startswith((*WORDS, ": "))


def _unknown(name: str, known: Sequence[str]) -> str:
    if tuple(known) == (FEATURES,):
        return (
            f"{name!r} is no feature. Another operator makes the features of this recipe, so they have no "
            f"names of their own: write {FEATURES}[0], {FEATURES}[1] and so on."
        )
    if column := max((one for one in known if name.startswith(f"{one} ")), key=len, default=""):
        return (
            f"what follows the column {column!r} in {name!r} is no slice. Slices are read as `rowsieve cues` "
            f"prints them; {column!r} alone balances all of its features."
        )
    entry = ENTRY.fullmatch(name)
    meant = entry["column"] if entry else min((name.partition(word)[0] for word in WORDS), key=len)
    hint = nearest(meant, known)
    if not hint:
        words = inline_yaml([name])
        hint = (
            f" The source's columns are: {first_of(known, 30)}; `rowsieve validate` without this name tells "
            "which of them are features: constants and identifiers are none. A word of a text is named with "
            f"its column: {{column: NAME, words: {words}}}."
        )
    return f"the features have no column {name!r}.{hint}"
