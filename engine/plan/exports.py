"""The export tables of a recipe (`output.export`), which are checked before anything runs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from connectors.base import ConnectorError
from connectors.tables.export import Export, open_export
from engine.core.errors import InputError
from engine.recipe.recipe import ExportSection


def open_exports(sections: Sequence[ExportSection]) -> list[Export]:
    """Return the tables to write to, without opening them. Raises InputError if a library is missing."""
    try:
        return [open_export(one.format, one.path, one.mode, one.catalog, os.getcwd()) for one in sections]
    except ConnectorError as error:
        raise InputError(str(error)) from None
