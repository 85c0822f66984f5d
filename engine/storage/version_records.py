"""Records of one version each, which say that it was withdrawn or removed: ``FOLDER/<version>.json``.

They are untrusted, as everything in a shared output.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from connectors.base import ConnectorError
from connectors.storage import Place
from engine.core.errors import InputError
from engine.core.json_files import DamagedFileError, read_json


class VersionRecord(BaseModel):
    """Reason and time that are recorded for a version."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    version: str


Found = TypeVar("Found", bound=VersionRecord)


def read_version_record(
    kind: type[Found], output: Place, folder: str, version: str, *, says: str, remedy: str
) -> Found | None:
    """Return the record of a version; None if there is none.

    Parameters
    ----------
    kind : the record's model.
    output, folder : the output, and the folder in it that holds such records.
    says : what such a record says of its version, such as ``was removed``.
    remedy : what to do about a damaged one.

    Raises
    ------
    InputError
        The record is damaged, or names another version.

    """
    place = output / folder / f"{version}.json"
    try:
        found = kind.model_validate(read_json(place, root=output))
        if found.version != version:
            raise ValueError(f"it names the version {found.version[:60]!r}")
    except FileNotFoundError:
        return None
    except (OSError, ConnectorError, DamagedFileError, ValidationError, ValueError) as error:
        reason = "it is not such a record" if isinstance(error, ValidationError) else str(error)
        raise InputError(
            f"{place} says that the version {says}, but cannot be read: {reason.rstrip('.')}. {remedy}"
        ) from None
    return found
