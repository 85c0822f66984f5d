"""Numbers and booleans: scaling fitted on a histogram, missing values replaced by the median.

The scalings are those of scikit-learn: ``StandardScaler``, ``RobustScaler``, ``QuantileTransformer`` with a
normal output; ``log`` is the inverse hyperbolic sine of a robust value. Missing values are replaced as by
``SimpleImputer(strategy="median", add_indicator=True)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Float32, Float64
from operators.encode.amounts import AmountRule
from operators.encode.column_forms import Form, as_numbers, dictionary_encoded, form_of
from operators.encode.durations import DURATION
from operators.encode.durations import durations as seconds_of
from operators.encode.sketches import Histogram
from operators.encode.summary import NUMBER, ColumnSummary
from operators.encode.texts import is_missing, numbers, tidy
from operators.encoded_features import Output
from operators.ingest.kernel import FLOAT32_MAX, Codes, Reason
from operators.spread import usable_scale

HEAVY_KURTOSIS = 12.0
"""Kurtosis above which a column has heavy tails. A normal distribution has 3, an exponential one 9."""
HEAVY_DISTINCT = 10
"""Distinct values up to which a column is not examined for heavy tails."""
N_QUANTILES = 1000
"""Quantiles that ``scaling: quantile`` keeps, as in ``QuantileTransformer``."""
EDGE = 1e-7
"""Distance from 0 and 1 at which ``QuantileTransformer`` clips ranks before it takes normal quantiles."""

Method = Literal["none", "standard", "robust", "log", "quantile"]


@dataclass(frozen=True)
class Scale:
    """A monotone map of a column's numbers.

    Attributes
    ----------
    method : ``none``, ``standard``, ``robust``, ``log`` or ``quantile``.
    centre, factor : a number x becomes (x - centre) / factor, then for ``log`` its inverse hyperbolic sine.
    quantiles : for ``quantile``: the column's quantiles at evenly spaced probabilities, (m,).
    """

    method: Method = "none"
    centre: float = 0.0
    factor: float = 1.0
    quantiles: Float64 = field(default_factory=lambda: np.empty(0))

    def forward(self, values: Float64) -> Float64:
        """Map numbers (n,) of the column; NaN stays NaN."""
        if self.method == "none":
            return values
        if self.method != "quantile":
            scaled = (values - self.centre) / self.factor
            return np.asarray(np.arcsinh(scaled) if self.method == "log" else scaled)
        return _normal(_ranks(values, self.quantiles))

    def backward(self, values: npt.ArrayLike) -> Float64:
        """Return numbers of the column that are mapped to these values."""
        scaled = np.asarray(values, np.float64)
        if self.method != "quantile":
            return (np.sinh(scaled) if self.method == "log" else scaled) * self.factor + self.centre
        from scipy.special import ndtr

        return np.asarray(np.interp(ndtr(scaled), _references(self.quantiles), self.quantiles))

    def cut(self, threshold: float) -> float:
        """Return the cut of the feature that belongs to a threshold in the unit of the column."""
        return float(self.forward(np.array([threshold]))[0])

    def to_json(self) -> dict[str, Any]:
        """Return the map as JSON-able values."""
        if self.method == "quantile":
            return {"method": self.method, "quantiles": self.quantiles.tolist()}
        return {"method": self.method, "centre": self.centre, "factor": self.factor}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Read what :meth:`to_json` returned."""
        quantiles = np.asarray(found.get("quantiles", ()), np.float64)
        return cls(found["method"], found.get("centre", 0.0), found.get("factor", 1.0), quantiles)


def fit_scale(histogram: Histogram, method: Method | Literal["auto"]) -> Scale:
    """Fit a scaling on the numbers of a column."""
    if method == "auto":
        method = "log" if has_heavy_tails(histogram) else "none"
    if method == "none" or not histogram.rows:
        return Scale()
    if method == "quantile":
        references = np.linspace(0, 1, min(N_QUANTILES, histogram.rows))
        return Scale("quantile", quantiles=np.maximum.accumulate(histogram.quantiles(references)))
    if method == "standard":
        mean, variance, _ = moments(histogram)
        return Scale("standard", mean, float(np.sqrt(variance)) or 1.0)
    low, middle, high = histogram.quantiles([0.25, 0.5, 0.75]).tolist()
    if method == "log":
        return Scale("log", middle, (high - low) or _median_distance(histogram, middle))
    return Scale("robust", middle, (high - low) or 1.0)


def _median_distance(histogram: Histogram, middle: float) -> float:
    """Return the median distance from a value that at least half of the rows have, among the other rows."""
    others = (histogram.low != middle) | (histogram.high != middle)
    if not others.any():
        return 1.0
    distances = np.abs((histogram.low + histogram.high)[others] / 2 - middle)
    return float(Histogram.of(distances, histogram.counts[others]).quantiles([0.5])[0]) or 1.0


def moments(histogram: Histogram) -> tuple[float, float, float]:
    """Return mean, variance and kurtosis; both are 0 for a column of equal values."""
    values = histogram.low + (histogram.high - histogram.low) / 2
    share = histogram.counts / histogram.rows
    mean = float(share @ values)
    squares = (values - mean) ** 2
    variance = float(share @ squares)
    if not usable_scale(np.sqrt(variance), histogram.low[0], histogram.high[-1], constant=0.0):
        return mean, 0.0, 0.0
    return mean, variance, float(share @ (squares / variance) ** 2)


def has_heavy_tails(histogram: Histogram) -> bool:
    """Return whether a few values lie so far out that they decide the variance of the column."""
    if histogram.distinct <= HEAVY_DISTINCT or not histogram.rows:
        return False
    return moments(histogram)[2] > HEAVY_KURTOSIS


@dataclass(frozen=True)
class NumberEncoding:
    """A fitted numeric or boolean column: its scaled value, and where needed a 0/1 feature "is missing".

    Attributes
    ----------
    source, kind : the column and its kind.
    scale : map of the numbers.
    fill : mapped value in place of a missing one.
    indicator : whether there is a feature "is missing".
    fails : whether a missing value is a fault of its row.
    missing : texts that stand for a missing value, for numbers that are written as text.
    amounts : how amounts in text are read; None for other columns.
    durations : whether texts are durations.
    """

    source: str
    kind: str
    scale: Scale
    fill: float
    indicator: bool
    fails: bool
    missing: tuple[str, ...] = ()
    amounts: AmountRule | None = None
    durations: bool = False

    @property
    def outputs(self) -> list[Output]:
        """Return the features, with the source column of each."""
        value = Output(self.source, self.kind, self.source, "value")
        gap = Output(self.source, self.kind, f"{self.source} is missing", "missing")
        return [value, gap] if self.indicator else [value]

    def encode(self, column: pa.ChunkedArray, x: Float32, codes: Codes) -> None:
        """Write the features of n rows into ``x`` (n, 1 or 2), and reasons of faulty rows into ``codes``."""
        values, wrong = self.read(column)
        gaps = np.isnan(values) & ~wrong
        codes[wrong] = Reason.NUMBER
        codes[np.abs(values) > FLOAT32_MAX] = Reason.RANGE
        codes[np.isinf(values)] = Reason.INFINITE
        if self.fails:
            other = Reason.MISSING_TEXT if _is_text(column) else Reason.NAN
            codes[gaps] = np.where(column.is_null().to_numpy()[gaps], Reason.NULL, other)
        values[codes != Reason.GOOD] = 0.0
        mapped = self.scale.forward(values)
        beyond = np.abs(mapped) > FLOAT32_MAX  # an outlier of a column of small spread
        codes[beyond] = Reason.RANGE
        mapped[beyond] = 0.0
        mapped[gaps] = self.fill
        x[:, 0] = mapped
        if self.indicator:
            x[:, 1] = gaps

    def read(self, column: pa.ChunkedArray) -> tuple[Float64, npt.NDArray[np.bool_]]:
        """Return the column's numbers, and which texts are none, as :func:`read_numbers`."""
        return read_numbers(column, self.missing, self.amounts, durations=self.durations)

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as JSON-able values."""
        return {
            "type": "number",
            "source": self.source,
            "kind": self.kind,
            "scale": self.scale.to_json(),
            "fill": self.fill,
            "indicator": self.indicator,
            "fails": self.fails,
            "missing": list(self.missing),
            **({"amounts": self.amounts.to_json()} if self.amounts else {}),
            **({"durations": True} if self.durations else {}),
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Read what :meth:`to_json` returned."""
        return cls(
            found["source"],
            found["kind"],
            Scale.from_json(found["scale"]),
            found["fill"],
            found["indicator"],
            found["fails"],
            tuple(found["missing"]),
            AmountRule.from_json(found["amounts"]) if "amounts" in found else None,
            found.get("durations", False),
        )


def fit_number(
    summary: ColumnSummary,
    kind: str,
    *,
    scaling: Method | Literal["auto"],
    missing: Literal["median_and_indicator", "median", "fail"],
    min_missing_share: float,
    missing_texts: tuple[str, ...],
    amounts: AmountRule | None = None,
    durations: bool = False,
) -> NumberEncoding:
    """Fit the encoding of a numeric or boolean column on its summary."""
    reading = DURATION if durations else NUMBER
    histogram = summary.histogram or summary.parsed.get(reading) or Histogram.of([])
    is_text = summary.form in (Form.TEXT, Form.CATEGORY)
    scale = Scale() if kind == "boolean" else fit_scale(histogram, scaling)
    if not histogram.rows:
        fill = 0.0
    elif kind == "boolean":
        fill = float(histogram.low[histogram.counts.argmax()])
    else:
        fill = float(scale.forward(histogram.quantiles([0.5]))[0])
    wanted = missing == "median_and_indicator" and summary.missing > 0
    indicator = wanted and min_missing_share <= summary.missing_share <= 1 - min_missing_share
    texts = missing_texts if is_text else ()
    return NumberEncoding(
        source=summary.name,
        kind=kind,
        scale=scale,
        fill=fill,
        indicator=indicator,
        fails=missing == "fail",
        missing=texts,
        amounts=amounts,
        durations=durations,
    )


def read_numbers(
    column: pa.ChunkedArray,
    missing: tuple[str, ...] = (),
    amounts: AmountRule | None = None,
    *,
    durations: bool = False,
) -> tuple[Float64, npt.NDArray[np.bool_]]:
    """Return a column's numbers (n,), NaN for missing ones, and a mask (n,) of texts that are not numbers.

    Parameters
    ----------
    column : numbers, booleans, or numbers that are written as text.
    missing : texts that stand for a missing value.
    amounts : how amounts in text are read: a text that is not written so counts as missing.
    durations : whether texts are durations, whose numbers are seconds.
    """
    if not _is_text(column):
        values = np.zeros(len(column)) + np.nan if pa.types.is_null(column.type) else as_numbers(column)
        return np.array(values), np.zeros(len(values), bool)
    encoded = dictionary_encoded(column)
    texts = tidy(encoded.dictionary)
    found = amounts.read(texts) if amounts else (seconds_of if durations else numbers)(texts)
    absent = is_missing(texts, missing) | (np.isnan(found) if amounts else False)
    codes = encoded.indices.fill_null(len(texts)).to_numpy()
    values = np.append(np.where(absent, np.nan, found), np.nan)[codes]
    return values, np.append(np.isnan(found) & ~absent, False)[codes]


def _is_text(column: pa.ChunkedArray) -> bool:
    return form_of(column.type) in (Form.TEXT, Form.CATEGORY)


def _references(quantiles: Float64) -> Float64:
    return np.linspace(0, 1, len(quantiles))


def _ranks(values: Float64, quantiles: Float64) -> Float64:
    """Return the ranks of numbers in [0, 1]; the middle of its ranks for a number that occurs often."""
    references = _references(quantiles)
    up = np.interp(values, quantiles, references)
    down = np.interp(-values, -quantiles[::-1], -references[::-1])
    found = 0.5 * (up - down)
    edge = EDGE * min(float(quantiles[-1] - quantiles[0]), 1.0)
    found[values + edge > quantiles[-1]] = 1.0
    found[values - edge < quantiles[0]] = 0.0
    return np.asarray(found)


def _normal(ranks: Float64) -> Float64:
    from scipy.special import ndtri

    edge = ndtri(EDGE - np.spacing(1))
    return np.asarray(np.clip(ndtri(ranks), edge, -edge))
