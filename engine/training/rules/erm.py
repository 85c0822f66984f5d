"""Empirical risk minimisation: the weighted mean."""

from __future__ import annotations

import torch

from engine.training.rules.base import Batch, RuleState
from engine.training.rules.on_device import MeanOnDevice
from operators.arrays import Float64


class Erm:
    """c_i = w_i / n, with weights of mean 1 over all train rows: a step of heavy rows is a larger one."""

    sees_all = False

    def __init__(self) -> None:
        self.state: RuleState = {}

    def weigh(self, batch: Batch) -> Float64:
        """Implement the method of :class:`engine.training.rules.base.Rule`."""
        return batch.weight / batch.n_rows

    def on_device(self, device: torch.device) -> MeanOnDevice:
        """Implement the method of :class:`engine.training.rules.on_device.HasDeviceForm`."""
        return MeanOnDevice()
