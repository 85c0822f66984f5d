"""Descriptions of groups of rows in words: rules over source columns, frequent terms, central rows.

The engine draws the rows and shows the descriptions; this package knows arrays and Arrow tables alone.
"""

from operators.descriptions.describe import GroupSample, describe_groups, describe_slices
from operators.descriptions.rules import Rule, RuleScore, find_rule

__all__ = ["GroupSample", "Rule", "RuleScore", "describe_groups", "describe_slices", "find_rule"]
