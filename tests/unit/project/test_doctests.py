"""The examples in docstrings of the public API and of the estimators run as they stand."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

import rowsieve

API = ["rowsieve", *(f"rowsieve.{name}" for name in ("curation", "estimators", "execution", "published"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
WITHOUT_EXAMPLE: set[str] = set()
"""Estimators that still lack an example. The list is exact: remove a name once its docstring has one."""


def examples(value: object, name: str) -> list[doctest.DocTest]:
    return [found for found in doctest.DocTestFinder(recurse=True).find(value, name) if found.examples]


def check(found: doctest.DocTest) -> None:
    failed = doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(found)
    assert failed.failed == 0, f"{found.name}: see the output above"


@pytest.mark.parametrize("name", API)
def test_examples_of_the_api_run(name: str) -> None:
    for found in examples(import_module(name), name):
        check(found)


@pytest.mark.parametrize("name", ["curate", "open", "run", "submit"])
def test_every_public_function_has_an_example(name: str) -> None:
    assert examples(getattr(rowsieve, name), name)


@pytest.mark.parametrize("name", rowsieve.estimators.__all__)
def test_examples_of_estimators_run(name: str) -> None:
    for found in examples(getattr(rowsieve.estimators, name), name):
        check(found)


def test_the_list_of_estimators_without_an_example_is_exact() -> None:
    found = {
        name for name in rowsieve.estimators.__all__ if not examples(getattr(rowsieve.estimators, name), name)
    }
    assert found == WITHOUT_EXAMPLE
