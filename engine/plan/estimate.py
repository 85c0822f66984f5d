"""Expected time and memory of a run, from the costs that its operators declare."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log2

from operators.base import Cost

FEATURES = 64
"""Features of the rows that the costs were measured on."""
STEPS = {"publish": Cost(7.90, 5.15, 111), "report": Cost(61.5, 14.6, 37)}
"""Costs of the steps after the operators, from the table "scale-standard" in tests/benchmarks/README.md."""
BASE_MIB, START_SECONDS = 450.0, 5.0
"""Memory of the process before it reads rows, and time of its start, with Python's packages."""
SHARD_ROWS = 50_000
"""Rows of a shard in the measurement: memory is bounded by a shard, not by the rows."""
TEXTS_PER_SECOND = 50.7
"""Free texts that the network ``minilm`` reads in a CPU second without bfloat16: the table "embed" there."""
IMAGES_PER_SECOND = 37.4
"""Images that the network ``efficientnet_lite0`` reads in a CPU second, with decoding: the same table."""
FIXED_SHARE = 0.3
"""Share of the cost that does not depend on the number of features."""
CLASSES = 2
"""Classes of the rows that the costs were measured on."""
CLASS_GROWTH = 0.08
"""Share by which the time grows with each doubling of the classes.

Measured on the standard chain with 64 features, in CPU seconds of a run with its report: on 2, 10 and 40
classes 9.7, 12.4 and 14.1 for 10,000 rows; 16.4 and 20.2 on 2 and 40 classes for 20,000 rows.
"""


@dataclass(frozen=True)
class Estimate:
    """Expected time and memory of a run.

    Attributes
    ----------
    seconds
        CPU seconds of one core, all operators together.
    mib
        Peak memory of one process, in MiB.
    slowest
        The operator or step that takes most of the time.
    image_seconds, text_seconds
        CPU seconds that networks take for images and for free texts, which are not part of ``seconds``: a GPU
        makes them less, and so do bfloat16 and repeated texts.
    added
        Whether ``slowest`` is not an operator of the recipe: every run of its kind has it.

    """

    seconds: float
    mib: float
    slowest: str
    image_seconds: float = 0.0
    text_seconds: float = 0.0
    added: bool = False

    @property
    def text(self) -> str:
        """The estimate as a phrase, rounded, since the rates are of another machine."""
        time, memory = _duration(self.seconds), _memory(self.mib)
        networks = {"images": self.image_seconds, "free text": self.text_seconds}
        beside = "".join(f"; {network_text(seconds, kind)}" for kind, seconds in networks.items() if seconds)
        added = ", which the run adds" if self.added else ""
        return f"about {time} of one core and {memory}, mostly for `{self.slowest}`{added}{beside}"


def estimate(
    costs: Mapping[str, Cost],
    n_rows: int,
    n_features: int,
    shard_rows: Sequence[int],
    *,
    images: int = 0,
    texts: int = 0,
    n_classes: int = CLASSES,
    named: Collection[str] | None = None,
) -> Estimate:
    """Estimate the cost of a run.

    Parameters
    ----------
    costs
        Declared costs by the name of the operator, without those of networks.
    n_rows
        Number of rows of the source.
    n_features
        Number of features of a row after encoding.
    shard_rows
        Number of rows of each shard.
    images
        Number of columns of images.
    texts
        Number of columns of free text.
    n_classes
        Number of distinct labels.
    named
        Operators that the recipe names; default: all.

    """
    steps = {**costs, **STEPS}
    wide = width_factor(n_features)
    many = 1 + CLASS_GROWTH * log2(max(n_classes, CLASSES) / CLASSES)
    seconds = {name: cost.per_million(n_rows) * n_rows / 1e6 * wide * many for name, cost in steps.items()}
    largest = max(shard_rows, default=n_rows) / SHARD_ROWS
    peak = max(cost.mib for cost in steps.values()) * max(0.2, largest) * wide
    slowest = max(seconds, key=lambda name: seconds[name])
    total, added = START_SECONDS + sum(seconds.values()), named is not None and slowest not in named
    return Estimate(
        seconds=total,
        mib=BASE_MIB + peak,
        slowest=slowest,
        image_seconds=images * n_rows / IMAGES_PER_SECOND,
        text_seconds=texts * n_rows / TEXTS_PER_SECOND,
        added=added,
    )


def network_text(seconds: float, kind: str) -> str:
    """Say how long a network may take beside the other work. ``kind``: what it reads, as "free text"."""
    return f"up to {_duration(seconds)} more for the network that reads {kind}"


def width_factor(n_features: int) -> float:
    """Return the cost of rows with this number of features, relative to rows with ``FEATURES`` features."""
    return FIXED_SHARE + (1 - FIXED_SHARE) * n_features / FEATURES


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{_rounded(seconds)} s"
    return f"{_rounded(seconds / 60)} min" if seconds < 5400 else f"{_rounded(seconds / 3600)} h"


def _memory(mib: float) -> str:
    return f"{_rounded(mib)} MiB" if mib < 1000 else f"{mib / 1024:.1f} GiB"


def _rounded(value: float) -> str:
    """Return a value to one digit beyond the first, as ``120`` or ``35``."""
    return f"{float(f'{value:.2g}'):.0f}" if value >= 1 else "1"
