"""What group inference keeps of a class whose gradients are factored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from operators.dbscan.points import Metric, blocks
from operators.factored import FactoredGradients, Layer, MeanGradient
from operators.factored.points import FactoredPoints
from operators.grasp.model import BLOCK, NOISE, ClassModel


@dataclass(frozen=True, eq=False)
class FactoredModel:
    """:class:`~operators.grasp.model.ClassModel` of factored gradients: the cores are kept as factors.

    Attributes
    ----------
    metric, eps, labels : see there.
    mean : what "centered_cosine" subtracts; None for the other metrics.
    cores : m core samples.
    """

    metric: Metric
    eps: float
    mean: MeanGradient | None
    cores: FactoredGradients
    labels: npt.NDArray[np.int32]

    def assign(self, gradients: FactoredGradients) -> npt.NDArray[np.int32]:
        """Group of the nearest core sample of each row if within eps, else -1.

        Parameters
        ----------
        gradients : n rows, from the same model and parameters as in fit.

        Returns
        -------
        (n,) int32, numbered from 0 within the class.
        """
        if not len(self.cores):
            return np.full(len(gradients), NOISE, np.int32)
        cores = FactoredPoints(self.cores, self.metric, self.mean)
        labels = np.empty(len(gradients), np.int32)
        for rows in blocks(len(gradients), BLOCK):
            measures = FactoredPoints(gradients[rows], self.metric, self.mean).measures(cores)
            nearest = np.argmin(measures, axis=1)
            apart = measures[np.arange(len(rows)), nearest]
            near = (np.sqrt(apart) if self.metric == "euclidean" else apart) <= self.eps
            labels[rows] = np.where(near, self.labels[nearest], NOISE)
        return labels

    def save(self, file: Path | BinaryIO) -> None:
        """Write the model as an .npz archive."""
        layers = self.cores.layers
        chosen = np.array([(layer.weight, layer.bias) for layer in layers])
        fields: dict[str, Any] = {
            "metric": self.metric,
            "eps": self.eps,
            "labels": self.labels,
            "chosen": chosen,
        }
        for number, layer in enumerate(layers):
            fields |= {f"activations-{number}": layer.activations, f"errors-{number}": layer.errors}
        if self.mean is not None:
            fields |= {f"mean-{number}": part for number, part in enumerate(self.mean.parts)}
        np.savez(file, **fields)

    @classmethod
    def load(cls, file: Path | BinaryIO) -> FactoredModel:
        """Read what :meth:`save` wrote."""
        with np.load(file, allow_pickle=False) as stored:
            layers = [
                Layer(stored[f"activations-{number}"], stored[f"errors-{number}"], bool(weight), bool(bias))
                for number, (weight, bias) in enumerate(stored["chosen"])
            ]
            mean = None
            if "mean-0" in stored.files:
                mean = MeanGradient([stored[f"mean-{number}"] for number in range(len(layers))])
            metric: Any = str(stored["metric"])
            return cls(metric, float(stored["eps"]), mean, FactoredGradients(layers), stored["labels"])


def load_model(file: Path) -> ClassModel | FactoredModel:
    """The model of a class, in whichever form its gradients were."""
    with np.load(file, allow_pickle=False) as stored:
        factored = "chosen" in stored.files
    return FactoredModel.load(file) if factored else ClassModel.load(file)
