"""Parameters of the trainers. Each trainer has its own class, so that keys of other trainers are errors.

``base`` has what all trainers share, ``erm``, ``robust`` and ``phases`` have the classes of the trainers, and
``registry`` finds the class by the trainer's name.
"""

from engine.recipe.trainers.base import LINEAR, TrainParams, trainer_of
from engine.recipe.trainers.erm import ErmParams
from engine.recipe.trainers.phases import BoostedParams, DfrParams, JttParams
from engine.recipe.trainers.registry import LATER_KEYS, TRAINERS, check_target, model_table, parse_params
from engine.recipe.trainers.robust import GdroParams, StepwiseParams

__all__ = [
    "LATER_KEYS",
    "LINEAR",
    "TRAINERS",
    "BoostedParams",
    "DfrParams",
    "ErmParams",
    "GdroParams",
    "JttParams",
    "StepwiseParams",
    "TrainParams",
    "check_target",
    "model_table",
    "parse_params",
    "trainer_of",
]
