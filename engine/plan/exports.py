"""The export tables of a recipe (`output.export`), which are checked before anything runs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from connectors.base import ConnectorError
from connectors.storage import Place
from connectors.tables.export import Export, open_export
from engine.core.errors import InputError
from engine.plan.output_place import check_export_apart
from engine.recipe.recipe import ExportSection


def open_exports(sections: Sequence[ExportSection], output: Place | None = None) -> list[Export]:
    """Return the tables to write to, without opening them.

    Raises InputError if a library is missing, or a table lies in ``output``, that of the version to be
    exported, or in another one.
    """
    for section in sections:
        check_export_apart(section, output)
    try:
        return [open_export(one.format, one.path, one.mode, one.catalog, os.getcwd()) for one in sections]
    except ConnectorError as error:
        raise InputError(str(error)) from None
