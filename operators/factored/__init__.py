"""Gradients kept as (activation, error) pairs per layer: exact inner products without the flat rows."""

from operators.factored.gradients import FactoredGradients, Layer

__all__ = ["FactoredGradients", "Layer"]
