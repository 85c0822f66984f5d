"""The layout of an output: its place, the folders of its versions, and the pointer to the current version."""

from __future__ import annotations

from connectors.base import ConnectorError
from connectors.storage import Place, place_of
from engine.core.errors import InputError

POINTER = "CURRENT"
FORMAT = 1
"""Version of the layout of published files."""


def output_of(path: str | Place) -> Place:
    """Return the place of an output: an absolute folder or a prefix of an object store. Raises InputError."""
    try:
        return place_of(path)
    except ConnectorError as error:
        raise InputError(f"output.path: {error}") from None


def version_folder(output: Place, version: str) -> Place:
    """Return the folder of a published version."""
    return output / "versions" / version
