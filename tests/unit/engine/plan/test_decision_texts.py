"""Decisions of incremental runs in one line."""

from __future__ import annotations

from engine.plan.decisions import describe_base


def test_a_reason_is_said_once_for_all_operators_that_have_it() -> None:
    shards = {"old": 2, "new": 1, "gone": 0}
    again = "everything is computed again"
    fitted = {"encode": again, "ingest": again, "split": "it is new in the recipe"}
    text = describe_base({"base": "v1", "shards": shards, "fitted": fitted})
    assert text.endswith(f"; fitted again: encode, ingest ({again}); split (it is new in the recipe)")
    assert describe_base({"base": "v1", "shards": shards, "fitted": {}}).endswith("; fitted again: nothing")
