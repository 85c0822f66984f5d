"""The operator ``outliers``: decides which rows are probably corrupt, by evidence or by votes."""

from operators.outliers.votes import decide

__all__ = ["decide"]
