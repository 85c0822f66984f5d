"""Parameters of the operator ``cues``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from operators.base import OperatorParams
from operators.caseless import caseless

NOTABLE_LOSS = 0.025
"""Loss of balanced accuracy above which the user is told what to do if a named column is honest."""
IF_HONEST = (
    "; if a named column is honest signal after all, that is a loss: take its name away, or set "
    "max_named_cost"
)
CONTAINS, OR = " contains ", " or "
"""What stands between a column and its words in the condition in words, and between two words."""
LEFT_OUT = "left_out_rows."
"""Beginning of the metrics with the rows of a class that is too small for any figure of the worst class."""
Name: TypeAlias = Annotated[str, Field(min_length=1)]


class CueSlice(OperatorParams):
    """A feature with the cut that divides its rows."""

    column: Name
    """Source column, or one entry of a vector column: ``image[48]``."""
    cut: float | None = None
    """Rows above it are one side, in the column's own unit. Default: found."""


class CueWords(OperatorParams):
    """The rows of which a text contains one of some words."""

    column: Name
    """Source column of texts; it need not be a feature."""
    words: Annotated[tuple[Annotated[str, Field(pattern=r"\S")], ...], Field(min_length=1)]
    """Whole words or phrases, whatever the case or Unicode form: a row counts if its text contains one of
    them. Several entries are balanced together, each by itself: rows with a word against rows without."""

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, value: Any) -> Any:
        """Accept ``{review: [nordwind, alvora]}`` for ``{column: review, words: [nordwind, alvora]}``."""
        if isinstance(value, Mapping) and len(value) == 1 and not {"column", "words"} & set(value):
            ((column, words),) = value.items()
            return {"column": column, "words": words} if isinstance(words, list | tuple) else value
        return value

    @property
    def label(self) -> str:
        """The condition in words."""
        return f"{self.column}{CONTAINS}{OR.join(self.words)}"


def _kind_of(value: Any) -> str:
    """Return the tag of a reference, so that the message on a wrong one speaks of one kind alone."""
    if isinstance(value, Mapping):
        return "<CueSlice>" if "cut" in value or set(value) <= {"column"} else "<CueWords>"
    if isinstance(value, CueSlice | CueWords):
        return f"<{type(value).__name__}>"
    return "<list>" if isinstance(value, list | tuple) else "<name>"


Reference: TypeAlias = Annotated[
    Annotated[Name, Tag("<name>")]
    | Annotated[CueSlice, Tag("<CueSlice>")]
    | Annotated[CueWords, Tag("<CueWords>")]
    | Annotated[tuple[Name, ...], Field(min_length=1), Tag("<list>")],
    Discriminator(_kind_of),
]


class CuesParams(OperatorParams):
    """The search for suspected shortcuts, and what the user knows of them."""

    robustness: Literal["safe", "bold"] = Field(
        default="safe",
        description="safe: robust weights as far as several kinds of evidence agree, or in full where much "
        "gain is to be expected, else class balance. "
        "bold: robust weights unless the evidence speaks against them, and in full where a smaller gain is "
        "to be expected, which gains on some tables without a shortcut and loses on others (worst group up "
        "to .05 below class balance in the study)",
    )
    spurious: tuple[Reference, ...] = Field(
        default=(),
        description="Known shortcuts, which are balanced against the label beside what the search finds: "
        "source columns; `image[48]` for an entry of a vector column; a list, or a pattern such as `race_*`, "
        "for the one-hot columns of one category; `{column: PAY_0, cut: 1.5}` for a slice, or the slice as "
        "`rowsieve cues` prints it, such as `hired in Nov-Feb`; "
        "`{column: review, words: [nordwind, alvora]}`, or in short `{review: [nordwind, alvora]}`, for the "
        "rows of which a text contains one of the words, as well as the name that `rowsieve cues` prints for "
        "them, such as `review contains nordwind`. A column of dates means whichever of elapsed time "
        "and its parts the models lean on most, and a column of numbers with gaps its value or whether it is "
        "missing",
    )
    legitimate: tuple[Reference, ...] = Field(
        default=(),
        description="Columns that are honest signal and have no part in the search, written as for "
        "`spurious`; the cut of a slice does not matter, and a column that is equal or opposite in every "
        "row, such as the other one of two one-hot columns, is answered as well. Words leave the list of "
        "suspects and are not balanced without a name, but features that "
        "tell them stay in the search",
    )
    max_named_cost: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Loss of balanced accuracy on held-out rows that the balance of `spurious` may cost, and "
        "half of it times the number of classes the loss of the worst class. 1 takes 85 % of the balance "
        "whatever it costs, and all of it if the worst group on held-out rows is better by .02 for that or "
        "the evidence of the search opens the gate further. A lower limit, such as 0.025, is for names "
        "that are guesses: where that costs more, two thirds, a third, a sixth "
        "or none of it is taken, and the report says so",
    )
    cap: float = Field(default=20.0, ge=1)
    """Largest weight as a multiple of the weight under class balance."""
    min_effective_share: float = Field(default=0.1, gt=0, le=1)
    """Least effective sample size of each class as a share of its rows; weights are shrunk towards class
    balance until it holds."""
    max_rows: int = Field(default=50_000, ge=100)
    """Rows of the sample on which models are fitted; fewer where there are very many features."""

    @model_validator(mode="after")
    def _answers_agree(self) -> Self:
        both = sorted(_names(self.spurious) & _names(self.legitimate))
        if both:
            raise ValueError(f"{both[0]!r} is named as spurious and as legitimate: remove one of the two")
        return self


def _names(references: tuple[Reference, ...]) -> set[str]:
    sets = (reference for reference in references if isinstance(reference, CueWords))
    words = {f"{one.column} contains {caseless(word)}" for one in sets for word in one.words}
    return words | {name for reference in references for name in names_of(reference)}


def names_of(reference: Reference) -> tuple[str, ...]:
    """Return the names of features of a reference as written: several for a list, none for words."""
    if isinstance(reference, CueWords):
        return ()
    if isinstance(reference, CueSlice):
        return (reference.column,)
    return (reference,) if isinstance(reference, str) else reference


def with_printed_words(params: CuesParams, texts: Collection[str], columns: Collection[str]) -> CuesParams:
    """Return parameters in which words that are named as ``rowsieve cues`` prints them are sets of words.

    Parameters
    ----------
    params
        As the recipe has them: ``note contains red or blue`` is a name.
    texts
        Columns of which words are listed. Of others, such as columns of lists, such a name is a slice.
    columns
        Columns of the features: one with this very name is what is meant.

    """
    read = {
        key: tuple(
            one if one in columns else _printed_words(one, texts) or one for one in getattr(params, key)
        )
        for key in ("spurious", "legitimate")
    }
    return params.model_copy(update=read)


def _printed_words(reference: Reference, texts: Collection[str]) -> CueWords | None:
    """Return the words of the text that :attr:`CueWords.label` writes; None for another reference."""
    if not isinstance(reference, str):
        return None
    for column in texts:
        words = tuple(reference.removeprefix(column + CONTAINS).split(OR))
        if reference.startswith(column + CONTAINS) and all(map(str.strip, words)):
            return CueWords(column=column, words=words)
    return None


def named_words(references: Sequence[Reference]) -> tuple[CueWords, ...]:
    """Return the sets of words among references, each once, in their order."""
    return tuple(dict.fromkeys(one for one in references if isinstance(one, CueWords)))
