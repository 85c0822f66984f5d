"""Figures of a model by group, split and column, and their plots."""
