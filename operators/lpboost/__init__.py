"""alpha-LPBoost: sample weights that seek the tail, model weights of least CVaR; with certified gaps."""

from operators.lpboost.ada import AdaWeights, ada_sample_weights
from operators.lpboost.group import Alone, Group
from operators.lpboost.problem import MAX_GAP, Solution, UncertifiedError, duality_gap
from operators.lpboost.rounds import Ensemble, Learner, Weighting, boost
from operators.lpboost.solver import (
    Method,
    SampleWeightSolver,
    solve,
    solve_model_weights,
    solve_sample_weights,
)

__all__ = [
    "MAX_GAP",
    "AdaWeights",
    "Alone",
    "Ensemble",
    "Group",
    "Learner",
    "Method",
    "SampleWeightSolver",
    "Solution",
    "UncertifiedError",
    "Weighting",
    "ada_sample_weights",
    "boost",
    "duality_gap",
    "solve",
    "solve_model_weights",
    "solve_sample_weights",
]
