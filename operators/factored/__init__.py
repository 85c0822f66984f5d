"""Gradients kept as (activation, error) pairs per layer: exact inner products without the flat rows."""

from operators.factored.gradients import FactoredGradients, Layer, MeanGradient
from operators.factored.packing import Part, unpack

__all__ = ["FactoredGradients", "Layer", "MeanGradient", "Part", "unpack"]
