"""Rules that weigh the rows of a step by their losses, one module for each family."""

from engine.training.rules.base import Batch, Rule, RuleState
from engine.training.rules.doro import Chi2Doro, CvarDoro
from engine.training.rules.erm import Erm
from engine.training.rules.gdro import GroupDro
from engine.training.rules.registry import rule_of

__all__ = ["Batch", "Chi2Doro", "CvarDoro", "Erm", "GroupDro", "Rule", "RuleState", "rule_of"]
