"""Messages for faults that pydantic finds: each names the key, the fault and, where it helps, the value."""

from __future__ import annotations

from typing import Any, Self

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from engine.core.suggestions import explain


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid")
    keep: str = "last"
    patience: int | None = None

    @field_validator("keep")
    @classmethod
    def _known(cls, value: str) -> str:
        if value == "all":
            raise ValueError("keep 'all' is not possible. Set it to last or best.")
        if value == "x":
            raise ValueError("operators.x.keep.rate: must be positive")
        if not value:
            raise ValueError("must not be empty")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.patience and self.keep != "best":
            raise ValueError("patience stops when no epoch scores better: set keep to best too")
        return self


def fault(values: dict[str, Any], prefix: str = "") -> str:
    with pytest.raises(ValidationError) as caught:
        Section.model_validate(values)
    return explain(caught.value, Section, "r.yaml", prefix)


def test_a_rule_over_several_keys_is_said_in_its_own_words() -> None:
    rule = "patience stops when no epoch scores better: set keep to best too."
    assert fault({"patience": 3}) == f"r.yaml: {rule}"
    assert fault({"patience": 3}, "operators.x.") == f"r.yaml: operators.x: {rule}"


def test_a_rule_that_names_its_section_is_told_without_a_second_name() -> None:
    text = "r.yaml: operators.x.keep.rate: must be positive; got 'x'."
    assert fault({"keep": "x"}, "operators.x.") == text


def test_a_rule_of_one_key_names_the_value_once() -> None:
    assert fault({"keep": "all"}) == "r.yaml: keep: keep 'all' is not possible. Set it to last or best."
    assert fault({"keep": ""}) == "r.yaml: keep: must not be empty; got ''."
