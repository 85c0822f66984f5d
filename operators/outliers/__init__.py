"""Which rows are marked as corrupt, where several operators have an opinion."""

from operators.outliers.votes import decide

__all__ = ["decide"]
