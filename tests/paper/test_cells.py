"""Figures that are kept depend on code that is there, so that every study can be run."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.paper.cells import code_digest


@pytest.mark.parametrize("study", ["baselines", "boosted", "downstream", "robust"])
def test_the_code_of_a_study_is_found(study: str) -> None:
    code = import_module(f"tests.paper.{study}.__main__").CODE
    assert code_digest(code) == code_digest(code)


def test_a_file_that_is_gone_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        code_digest(["engine/training/no_such_module.py"])
