"""Parameters of ``encode``: defaults for each kind of column, and what a recipe says of single columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from operators.base import OperatorParams, Resources
from operators.embed.params import Precision
from operators.encode.amounts import Decimal
from operators.encode.column_use import Kind
from operators.encode.texts import MISSING_TEXTS

Missing = Literal["median_and_indicator", "median", "fail"]
Scaling = Literal["auto", "none", "standard", "robust", "log", "quantile"]
Rare = Literal["auto", "bucket", "hash", "target"]
Part = Literal["elapsed", "year", "month", "day", "weekday", "hour"]
MAX_COLUMNS = 64
"""Most 0/1 features of a column of categories where the recipe gives no number and no more are common."""
MAX_TAGS = 30
"""Most 0/1 features of a column of lists where the recipe gives no number."""
MAX_COMPONENTS = 512
"""Most components of the words of a text."""


class NumericParams(OperatorParams):
    """Columns with numbers or booleans."""

    missing: Missing = "median_and_indicator"
    """Value that a null or NaN gets. median: the median, for booleans the more frequent value;
    median_and_indicator: also a 0/1 feature, where at least ``encode.min_missing_share`` of the rows lack a
    value; fail: a fault of the row, treated by ``source.on_error``. An infinite number is a fault of its row
    in any case."""
    scaling: Scaling = "auto"
    """none: as it is. standard: mean 0 and variance 1. robust: median 0 and interquartile range 1. log: the
    inverse hyperbolic sine of the robust value, a logarithm with a sign. quantile: by ranks to a normal
    distribution. auto: log for a column with heavy tails (kurtosis above 12 and more than 10 distinct
    values), else none, since the models standardise features themselves."""


class CategoricalParams(OperatorParams):
    """Categories: one 0/1 feature for each frequent one; a missing value is a category of its own.

    Lists of texts, such as tags, get a 0/1 feature for each frequent entry by ``min_share``, ``max_columns``,
    ``strip`` and ``fold_case``, and one for all infrequent entries."""

    min_share: float = Field(default=0.005, ge=0, le=0.5)
    """Least share of rows of a category with a feature of its own; the others are infrequent. It also bounds
    standardised features: a 0/1 feature of share p is at most 1/sqrt(p) standard deviations large, so 14."""
    max_columns: int | None = Field(default=None, ge=2, le=1000)
    """Most 0/1 features of a column, that of infrequent categories included; the most frequent are kept.
    Default: 64, or, where more values have at least 1 % of the rows each, these and one (at most 101): values
    that share a feature cannot be told apart, and a shortcut in them cannot be balanced. Lists: 30. Columns
    of categories without a number have at most 2,000 together: each keeps its 30, and the categories with
    the most rows the others; a warning names the columns with fewer than alone."""
    rare: Rare = "auto"
    """Representation of infrequent categories. bucket: one 0/1 feature for all of them, if it is frequent
    enough itself. hash: ``hash_columns`` features. target: shares of the classes among the other rows of the
    category, out of fold. auto: target if more than a fifth of the rows have an infrequent category and
    there are at most 10 classes, else bucket. With more than 10 classes, target is hash."""
    hash_columns: int = Field(default=16, ge=2, le=1024)
    """Features of ``rare: hash``."""
    smoothing: float = Field(default=20.0, gt=0)
    """Rows with the overall class shares that ``rare: target`` adds to each category."""
    strip: bool = True
    """Ignore white space around a text."""
    fold_case: bool = False
    """Ignore the case of letters."""


class DatetimeParams(OperatorParams):
    """Dates and points in time."""

    parts: tuple[Part, ...] | None = Field(default=None, min_length=1)
    """Parts that become features: ``elapsed`` (days since the median date), ``year``, and as sine and cosine
    ``month``, ``day``, ``weekday`` and ``hour``. Default: elapsed, and of month, weekday and hour those that
    the column's span and times of day allow."""


class TextParams(OperatorParams):
    """Free text, through the networks of ``embed``."""

    model: str | None = None
    """Encoder as in ``embed``, such as ``minilm`` (384 features a column). Default: none, so that free text
    is not used; ``validate`` and the report say so. Where a column is free text and the packages of the named
    encoder are missing, a run stops."""
    batch_size: int = Field(default=32, ge=1)
    """Most rows of a forward pass."""
    max_tokens: int = Field(default=128, ge=3, le=512)
    """Text is cut after so many word pieces."""
    precision: Precision = "auto"
    """Precision of the network, as in ``embed``."""
    words: int = Field(default=0, ge=0, le=MAX_COMPONENTS)
    """Further features from the words themselves: so many components of the tf-idf of the 5,000 most frequent
    ones (latent semantic analysis). ``rowsieve init`` writes 64. A word that decides is often lost in the
    network's vector."""


SETTINGS_OF = {
    Kind.NUMERIC: ("missing", "scaling"),
    Kind.AMOUNT: ("missing", "scaling", "decimal"),
    Kind.DURATION: ("missing", "scaling"),
    Kind.BOOLEAN: ("missing", "scaling"),
    Kind.CATEGORICAL: ("min_share", "max_columns", "rare"),
    Kind.TAGS: ("min_share", "max_columns"),
    Kind.DATETIME: ("missing", "parts", "format"),
}
"""Kind of a column -> the settings that it reads; the other kinds read none."""
ALL_SETTINGS = tuple(dict.fromkeys(name for names in SETTINGS_OF.values() for name in names))


def settings_of(kind: str | None) -> tuple[str, ...]:
    """Return the settings that a kind of column reads: all where the values decide the kind."""
    return SETTINGS_OF.get(Kind(kind), ()) if kind else ALL_SETTINGS


def _column(value: Any) -> Any:
    if isinstance(value, str):
        return {"kind": "unused" if value == "exclude" else value}
    return value


class ColumnParams(OperatorParams):
    """Settings of one column that differ. A kind alone may be written in place of the mapping."""

    kind: Kind | None = None
    """``numeric``, ``amount``, ``duration``, ``boolean``, ``categorical``, ``datetime``, ``text``, ``tags``,
    ``vector``, or ``unused`` (also written ``exclude``). Default: by the values. ``amount`` reads numbers
    from texts with a currency, a unit, a percent sign, thousands marks, or brackets for a minus, such as
    ``US$ 1,004.38``. Its rule, decided from all values and kept for new rows, is one decimal mark and one
    unit: the mark that reads most values, and the most frequent unit. A value with this unit or none is its
    number as it is written, ``12%`` is 12; any other value counts as missing, and more than 5 % of them are
    an error. ``duration`` reads lengths of time such as ``3h 22m``, ``45 min`` and ``01:22:05`` as seconds;
    each value has to be one."""
    missing: Missing | None = None
    """Treatment of missing values; default: that of ``numeric``."""
    scaling: Scaling | None = None
    """Scaling of numbers; default: that of ``numeric``."""
    min_share: float | None = Field(default=None, ge=0, le=0.5)
    """Share of rows from which a value has a feature; default: that of ``categorical``."""
    max_columns: int | None = Field(default=None, ge=2, le=1000)
    """Largest number of features; default: that of ``categorical``."""
    rare: Rare | None = None
    """Encoding of values without a feature of their own; default: that of ``categorical``."""
    parts: tuple[Part, ...] | None = Field(default=None, min_length=1)
    """Parts of dates that become features; default: those of ``datetime``."""
    format: str | None = Field(default=None, min_length=1)
    """Format of dates in text, as in ``strptime``: ``%d %b %Y``. Default: recognised."""
    decimal: Decimal | None = None
    """Mark in front of the decimals of an amount: ``.`` or ``,``. Default: the one that reads most values,
    and the point where both read as many."""

    @model_validator(mode="after")
    def _kind_reads_them(self) -> Self:
        read = settings_of(self.kind)
        for name in ALL_SETTINGS:
            if getattr(self, name) is not None and name not in read:
                settings = f"reads {', '.join(read)} alone" if read else "has no settings of its own"
                raise ValueError(f"a column of the kind {self.kind} {settings}: remove {name!r}")
        return self


def _read_settings(own: Mapping[str, Any]) -> dict[str, Any]:
    read = settings_of(own.get("kind"))
    return {name: value for name, value in own.items() if name not in ALL_SETTINGS or name in read}


class EncodeParams(OperatorParams):
    """The encoding of ordinary columns as features. Columns that are not named are encoded by their kind."""

    numeric: NumericParams = NumericParams()
    """Columns with numbers or booleans."""
    categorical: CategoricalParams = CategoricalParams()
    """Columns of categories."""
    datetime: DatetimeParams = DatetimeParams()
    """Dates and points in time."""
    text: TextParams = TextParams()
    """Columns of free text."""
    columns: Mapping[str, Annotated[ColumnParams, BeforeValidator(_column)]] = Field(default_factory=dict)
    """Single columns: ``{age: {missing: median}, zip: categorical, note: exclude}``."""
    missing_values: tuple[str, ...] = MISSING_TEXTS
    """Texts that stand for a missing value. Default: those of pandas and skrub, such as an empty text, ``?``
    and ``NA``. Each also stands for one in lower case (``na``), whatever ``fold_case`` is."""
    min_missing_share: float = Field(default=0.005, ge=0, le=0.5)
    """Least share of rows without a value for which a number or date gets the 0/1 feature "is missing"."""
    max_new_share: float = Field(default=0.2, gt=0, le=1)
    """In an incremental run, ``encode`` is fitted again if more than this share of the new rows have a
    category that no row had before, or if the share of missing values of a column differs by more."""
    features: tuple[str, ...] | None = None
    """Columns to encode; the engine fills it from ``source``."""
    explicit: bool = False
    """Whether ``source.features`` names the columns, so that identifiers among them are used too; filled by
    the engine."""
    label: str | None = None
    """Column with the class of each row, for ``rare: target``; filled by the engine."""
    classes: tuple[str | int | bool, ...] | None = None
    """Allowed labels; filled by the engine."""
    resources: Resources = Resources()
    """Resources of one actor."""

    @classmethod
    def recorded(cls, params: Mapping[str, Any]) -> Self:
        """Validate recorded parameters; settings that a kind does not read were allowed once."""
        columns = {name: _read_settings(own) for name, own in params.get("columns", {}).items()}
        return super().recorded({**params, "columns": columns})

    def categorical_of(self, name: str) -> CategoricalParams:
        """Return the parameters of a categorical column."""
        return self.categorical.model_copy(update=self._own(name, "min_share", "max_columns", "rare"))

    def numeric_of(self, name: str) -> NumericParams:
        """Return the parameters of a numeric or boolean column."""
        return self.numeric.model_copy(update=self._own(name, "missing", "scaling"))

    def parts_of(self, name: str) -> tuple[Part, ...] | None:
        """Return the parts of a date that become features; None to choose them by the values."""
        own = self.columns.get(name)
        return (own and own.parts) or self.datetime.parts

    def _own(self, name: str, *keys: str) -> dict[str, Any]:
        own = self.columns.get(name)
        found = {key: getattr(own, key, None) for key in keys}
        return {key: value for key, value in found.items() if value is not None}
