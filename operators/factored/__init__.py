"""Gradients kept as (activation, error) pairs per layer: exact inner products without the flat rows."""

from operators.factored.gradients import FactoredGradients, Layer, MeanGradient
from operators.factored.packed_rows import FactoredLayer, unpack

__all__ = ["FactoredGradients", "FactoredLayer", "Layer", "MeanGradient", "unpack"]
