"""Errors about a key of a recipe that was read from a file begin with the file, whatever part finds them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from engine.core.errors import RowsieveError
from engine.recipe.recipe import Recipe
from operators.base import OperatorError

KEY = re.compile(rf"({'|'.join(Recipe.model_fields)})[.:]")
"""Beginning of a message that names a key of a recipe."""


@contextmanager
def errors_of_file(recipe: Recipe) -> Iterator[None]:
    """Put the recipe's file before errors of the block that begin with a key of the recipe."""
    try:
        yield
    except (RowsieveError, OperatorError) as error:
        if recipe.file and len(error.args) == 1 and KEY.match(str(error)):
            error.args = (f"{recipe.file}: {error}",)
        raise
