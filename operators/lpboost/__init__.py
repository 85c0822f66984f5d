"""Boosted CVaR classification (alpha-LPBoost): sample weights for the next model, weights of the models.

Every result is certified by its duality gap. ``engine.training`` boosts with :class:`SampleWeightSolver` and
mixes ensembles with :func:`solve_model_weights`.

Source: Zhai, Dan, Suggala, Kolter, Ravikumar: Boosted CVaR Classification, NeurIPS 2021.
"""

from operators.lpboost.problem import MAX_GAP, Solution, UncertifiedError, duality_gap
from operators.lpboost.solver import (
    Method,
    SampleWeightSolver,
    solve,
    solve_model_weights,
)

__all__ = [
    "MAX_GAP",
    "Method",
    "SampleWeightSolver",
    "Solution",
    "UncertifiedError",
    "duality_gap",
    "solve",
    "solve_model_weights",
]
