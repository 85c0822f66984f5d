"""Records of removed versions: ``removed/<version>.json``, which say what a version was and when it went.

``rowsieve versions OUTPUT remove`` and ``prune`` write one before they remove anything. It outlives the
version, so that whoever asks for the version learns that it was removed, and versions that continue from it
still lead back to the versions before. The records are untrusted, as everything in a shared output.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from connectors.storage import Place
from engine.core.errors import InputError
from engine.core.json_files import write_json
from engine.storage.manifest import NAME, check_published, is_published
from engine.storage.version_records import VersionRecord, read_version_record
from operators.counts import count

FOLDER = "removed"
_Name = Annotated[str, Field(pattern=rf"^{NAME.pattern}$", max_length=200)]
_Fingerprint = Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]


class Removal(VersionRecord):
    """A removed version.

    ``content`` is the digest of its rows, ``base`` the version whose results it kept, if any, ``at`` the time
    of the removal in seconds since 1970, and ``fingerprints`` the folders of the run store that it needed.
    """

    version: _Name
    recipe: Annotated[str, Field(max_length=4_000)]
    rows: Annotated[int, Field(ge=0)]
    content: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
    base: _Name | None
    at: Annotated[float, Field(ge=0, le=2**40)]
    fingerprints: Annotated[tuple[_Fingerprint, ...], Field(strict=False, max_length=1_000)]


def write_removal(output: Place, manifest: Mapping[str, Any]) -> None:
    """Write the record of a version that is about to be removed. Raises OSError."""
    name = str(manifest["version"])
    keys = ("version", "recipe", "rows", "content")
    fingerprints = [entry["fingerprint"] for entry in manifest["operators"]]
    more = {"base": kept_base(manifest), "at": time.time(), "fingerprints": fingerprints}
    found = {key: manifest[key] for key in keys} | more
    write_json(output / FOLDER / f"{name}.json", found, root=output)


def kept_base(manifest: Mapping[str, Any]) -> str | None:
    """Return the version from which a manifest's version keeps what operators have learnt; None: no one."""
    increment = manifest.get("incremental") or {}
    return str(increment["base"]) if increment and increment.get("kept", True) else None


def removal_of(output: Place, version: str) -> Removal | None:
    """Return the record of a removed version; None if it is published or there is none.

    Raises InputError for a damaged record.
    """
    if not NAME.fullmatch(version) or is_published(output, version):
        return None
    return read_version_record(
        Removal, output, FOLDER, version, says="was removed", remedy="Remove the file."
    )


def removed_text(output: Place, found: Removal) -> str:
    """Return the sentence that tells of a removed version."""
    day = datetime.fromtimestamp(found.at, UTC).date().isoformat()
    return (
        f"The version {found.version} of {count(found.rows, 'row')} was removed from {output} on {day} "
        f"(rowsieve versions {output} remove or prune)."
    )


def check_there(output: Place, version: str) -> None:
    """Raise InputError if a version is not published: it was removed, or there never was one of this name."""
    found = removal_of(output, version)
    if found is not None:
        raise InputError(
            f"{removed_text(output, found)} To have it again, run its recipe over the same rows; `rowsieve "
            f"versions {output}` lists the versions that are there."
        )
    check_published(output, version)
