"""Decisions of incremental runs in one line."""

from __future__ import annotations

from engine.plan.decisions import describe, describe_base


def test_a_reason_is_said_once_for_all_operators_that_have_it() -> None:
    shards = {"old": 2, "new": 1, "gone": 0}
    again = "everything is computed again"
    fitted = {"encode": again, "ingest": again, "split": "it is new in the recipe"}
    text = describe_base({"base": "v1", "shards": shards, "fitted": fitted})
    assert text.endswith(f"; fitted again: encode, ingest ({again}); split (it is new in the recipe)")
    assert describe_base({"base": "v1", "shards": shards, "fitted": {}}).endswith("; fitted again: nothing")


def test_a_figure_beyond_its_threshold_that_may_be_chance_is_said_to_be_so() -> None:
    figure = {"name": "columns", "excess": 0.146, "threshold": 0.1, "over": False, "columns": ["hispan"]}
    figure |= {"p": 0.000116, "level": 0.000103}
    decision = {"outcome": "predict", "why": "no significant drift beyond the thresholds", "drift": [figure]}
    assert describe(decision) == (
        "predict, no significant drift beyond the thresholds: columns 0.146 (threshold 0.1, p 0.000116, "
        "which is above its limit 0.000103, hispan)"
    )
    drifted = describe(decision | {"drift": [figure | {"p": 0.0001, "over": True}]})
    assert "(threshold 0.1, p 0.0001, limit 0.000103, over, hispan)" in drifted
