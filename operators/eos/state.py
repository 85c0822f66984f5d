"""The state of ``eos``: arrays of the models, and a JSON record with the constants of their weights."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.bounded_json import read_json
from operators.counts import count
from operators.eos.alpha import AlphaPoint
from operators.eos.centroids import Boxes, Centroids
from operators.eos.descent import Fit, collapse
from operators.eos.kernel import Target, WeightStatistics
from operators.eos.losses import FixedLosses, GaussianModel, Linear
from operators.eos.memory import losses

MODELS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (GaussianModel, Centroids, Boxes, Linear, FixedLosses)
}
ARRAYS = "models.npz"
RECORD = "eos.json"
EVERYONE = -1
"""Key of a model that serves all classes."""
_log = logging.getLogger("rowsieve")


@dataclass(frozen=True)
class Scorer:
    """A fitted model of each class, or of :data:`EVERYONE`, and the constants of its weights."""

    models: dict[int, Any]
    statistics: dict[int, WeightStatistics]

    def log_weights(
        self, X: npt.NDArray[np.floating], classes: npt.NDArray[np.integer], y: Target
    ) -> Float64:
        """Return the log of weights of mean 1 (n,) for rows X (n, d) of ``classes`` (n,) with targets y.

        A row of a class without a model has the weight 1.
        """
        found = np.zeros(len(X))
        for key, model in self.models.items():
            mine = np.arange(len(X)) if key == EVERYONE else np.flatnonzero(classes == key)
            if len(mine):
                part = losses(model, X[mine], None if y is None else y[mine])
                found[mine] = self.statistics[key].log_weights(part)
        return found

    def save(self, folder: Path, record: dict[str, Any]) -> None:
        """Write ``models.npz`` and ``eos.json``, which also holds ``record``."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        described = {}
        for key, model in self.models.items():
            described[str(key)] = {
                "kind": type(model).__name__,
                "statistics": constants(self.statistics[key]),
            }
            arrays |= {
                f"{key}.{field.name}": np.asarray(getattr(model, field.name)) for field in fields(model)
            }
        np.savez(folder / ARRAYS, allow_pickle=False, **arrays)
        (folder / RECORD).write_text(json.dumps({"models": described, **record}, indent=2) + "\n", "utf-8")

    @classmethod
    def load(cls, folder: Path) -> Scorer:
        """Read a scorer that :meth:`save` wrote."""
        described = read_json(folder / RECORD)["models"]
        models, statistics = {}, {}
        with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
            for key, entry in described.items():
                kind = MODELS[entry["kind"]]
                values = {field.name: arrays[f"{key}.{field.name}"] for field in fields(kind)}
                models[int(key)] = kind(**{name: v if v.ndim else v.item() for name, v in values.items()})
                statistics[int(key)] = WeightStatistics(sums=np.zeros(0), **entry["statistics"])
        return cls(models, statistics)


def scorer_of(fits: dict[int, Fit]) -> Scorer:
    """Return the scorer of the fits of each class."""
    return Scorer(
        {key: fit.model for key, fit in fits.items()}, {key: fit.statistics for key, fit in fits.items()}
    )


def constants(statistics: WeightStatistics) -> dict[str, float]:
    """Return the statistics without their sums."""
    return {name: value for name, value in asdict(statistics).items() if name != "sums"}


def summary(fits: Mapping[int, Fit], too_small: Mapping[int, int]) -> dict[str, float]:
    """Return the metrics over all classes, whose weights have mean 1 each; log what the weights lack.

    ``too_small`` has the rows of each class that has no fit, because they are too few to choose alpha.
    """
    rows = {key: fit.statistics.prior for key, fit in fits.items()}
    total = sum(rows.values())
    alike = sum(too_small.values())
    squares = sum(rows[key] ** 2 / fit.statistics.effective_sample_size for key, fit in fits.items()) + alike
    collapsed = {key: text for key, fit in fits.items() if (text := collapse(fit))}
    for key, text in collapsed.items():
        _log.warning("operators.eos: %s%s", "" if key == EVERYONE else f"class {key}: ", text)
    if too_small:
        least = min(too_small, key=lambda key: too_small[key])
        _log.warning(
            "operators.eos: %s too few rows to choose alpha (%s has %d), so that their rows weigh 1 and none "
            "is flagged. Set alpha, or use fewer features or clusters.",
            "the recipe has" if least == EVERYONE else f"{count(len(too_small), 'class')} have",
            "all" if least == EVERYONE else f"class {least}",
            too_small[least],
        )
    found = {
        "effective_sample_size": (total + alike) ** 2 / squares,
        "iterations": float(max((len(fit.objective) for fit in fits.values()), default=0)),
        "converged": float(all(fit.converged for fit in fits.values())),
        "collapsed": float(len(collapsed)),
        "too_small": float(len(too_small)),
    }
    if fits:
        alphas = [fit.statistics.alpha for fit in fits.values()]
        found["objective"] = sum(rows[key] / total * fit.objective[-1] for key, fit in fits.items())
        found |= {"least_alpha": min(alphas), "largest_alpha": max(alphas)}
    return found


def record(fits: Mapping[int, Fit], curves: Mapping[int, Sequence[AlphaPoint]]) -> dict[str, Any]:
    """Return, by class, the objective of each iteration and the curve against alpha, for ``eos.json``."""
    return {
        "objective": {str(key): fit.objective for key, fit in fits.items()},
        "curve": {str(key): [asdict(point) for point in curve] for key, curve in curves.items()},
    }
