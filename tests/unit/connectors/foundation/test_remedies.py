"""Remedies of messages, as the writer of a recipe and others get them."""

from connectors.foundation.remedies import (
    CORRECT_PATH,
    NAME_FILES,
    add_operator,
    missing_operator,
    without_recipe,
)


def test_readers_without_a_recipe_are_told_of_the_path() -> None:
    text = without_recipe(f"a does not exist. {CORRECT_PATH}. b holds no rows. {NAME_FILES} with rows.")
    assert text == "a does not exist. Correct the path. b holds no rows. Name files with rows."
    assert "source." not in text


def test_the_operator_that_is_missing_is_found_in_its_remedy() -> None:
    assert add_operator("eos") == "Add `eos: {}`"
    assert (
        missing_operator(f"Nothing marks rows. {add_operator('eos')}, or {add_operator('groups')}.") == "eos"
    )
    assert missing_operator("Add `probe: {model: mlp}`.") is None
