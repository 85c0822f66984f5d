"""Reasons for fitting an operator again: their sentences, and the causes that are read from them."""

import pytest

from engine.plan.refit_reasons import Cause, Reason, learnt_again

DETAIL = "groups"


@pytest.mark.parametrize("cause", Cause)
def test_the_cause_of_a_sentence_is_the_one_that_it_was_made_from(cause: Cause) -> None:
    assert Cause.of(str(Reason(cause, DETAIL))) is cause


def test_a_detail_may_hold_braces_and_words_of_another_cause() -> None:
    reason = Reason(Cause.PARAMETERS, "text: {} is fitted again")
    assert str(reason) == "its parameters have changed: text: {} is fitted again"
    assert Cause.of(str(reason)) is Cause.PARAMETERS


def test_a_sentence_of_another_release_has_no_cause_and_counts_as_learnt_again() -> None:
    assert Cause.of("the moon is full") is None
    assert learnt_again({"fitted": {"cues": "the moon is full"}}) == {"cues": "the moon is full"}


def test_what_is_fitted_in_every_run_has_not_learnt_again() -> None:
    usual = Reason(Cause.CANNOT_PLACE), Reason(Cause.READS_FITTED, "dckm"), Reason(Cause.ROWS_GONE)
    fitted = dict(zip(("dckm", "split", "cues"), map(str, usual), strict=True))
    assert learnt_again({"fitted": fitted}) == {"cues": "rows are gone"}
