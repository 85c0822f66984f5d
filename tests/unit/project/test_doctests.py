"""The examples in docstrings of the public API and of the estimators run as they stand."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

import rowsieve

API = [f"rowsieve.{name}" for name in ("curation", "estimators", "execution", "published")]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def examples(value: object, name: str) -> list[doctest.DocTest]:
    return [found for found in doctest.DocTestFinder(recurse=True).find(value, name) if found.examples]


def check(value: object, name: str) -> None:
    """Run the examples of a module or an object, of which there is at least one."""
    some = examples(value, name)
    assert some, f"{name} has no example"
    for found in some:
        failed = doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(found)
        assert failed.failed == 0, f"{found.name}: see the output above"


@pytest.mark.parametrize("name", API)
def test_examples_of_the_api_run(name: str) -> None:
    check(import_module(name), name)


@pytest.mark.parametrize("name", ["curate", "open", "run", "submit"])
def test_every_public_function_has_an_example(name: str) -> None:
    assert examples(getattr(rowsieve, name), name)


def test_examples_of_recipes_run() -> None:
    check(rowsieve.Recipe, "rowsieve.Recipe")


@pytest.mark.parametrize("name", rowsieve.estimators.__all__)
def test_examples_of_estimators_run(name: str) -> None:
    check(getattr(rowsieve.estimators, name), name)
