"""Reading and checking a version's manifest. A manifest is untrusted, since anybody may have written it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from connectors.base import ConnectorError
from connectors.foundation.messages import nearest
from connectors.storage import Place, exist_many, read_many, read_whole
from engine.core.errors import InputError
from engine.core.output_layout import version_folder
from engine.core.suggestions import explain
from operators.bounded_json import BadJsonError, parse_json

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names of versions have no separator, so that no name leads out of its folder."""
MAX_BYTES = 256 * 2**20
MAX_CURRENT_BYTES = 4096
"""Bytes of the file that names the current version."""
NUMBER = "publication_number"
"""Key of a manifest: 1 for the first version of an output, and one more for each that is published after it.

Unlike times of files, the order of these numbers survives a copy of the output.
"""
_NUMBER = re.compile(rf'"{NUMBER}": (\d{{1,15}})'.encode())


class _Entry(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


_Count = Annotated[int, Field(ge=0, le=2**63 - 1)]


class _Part(_Entry):
    path: str = Field(pattern=r"^data/part-\d{5,}\.parquet$")
    rows: int = Field(ge=0)
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class _Column(_Entry):
    name: str
    type: str


class _Shard(_Entry):
    path: str
    first_row: int = Field(ge=0)
    rows: int = Field(ge=0)
    range: tuple[int, int] = Field(default=(0, 0), strict=False)


class _Source(_Entry):
    path: str
    label: str
    features: list[str]
    files: dict[str, str]
    shards: list[_Shard]
    skipped: dict[str, str] = {}


class _Operator(_Entry):
    name: str
    version: int
    params: dict[str, Any]
    fingerprint: str = Field(pattern=r"^[0-9a-f]{1,64}$")


class _Output(_Entry):
    name: str
    operator: str
    description: str


class _Summary(_Entry):
    groups: dict[Annotated[str, Field(pattern=r"^-?[0-9]{1,18}$")], _Count]
    splits: dict[str, _Count]
    outliers: _Count
    quarantined: _Count
    effective_sample_size: float


class _Figure(_Entry):
    name: str
    over: bool


class _Incremental(_Entry):
    base: str = Field(pattern=rf"^{NAME.pattern}$")
    outcome: str
    why: str = ""
    shards: dict[str, _Count]
    kept: list[str] = []
    fitted: dict[str, Any] = {}
    drift: list[_Figure] = []


class _Manifest(_Entry):
    version: str = Field(pattern=rf"^{NAME.pattern}$")
    rows: int = Field(ge=0)
    content: str = Field(pattern=r"^[0-9a-f]{1,64}$")
    publication_number: int = Field(default=1, ge=1)
    parts: list[_Part]
    columns: list[_Column] = Field(alias="schema")
    summary: _Summary
    incremental: _Incremental | None = None
    recipe: str
    seed: int
    source: _Source
    operators: list[_Operator]
    outputs: list[_Output] = []


def parse_manifest(text: str, place: str) -> dict[str, Any]:
    """Check the text of a manifest and return its values.

    Paths of parts are fixed names below ``data/``, fingerprints are hexadecimal and names of versions have no
    separator, so that no value of a checked manifest leads out of the output folder.

    Raises
    ------
    InputError
        The text is not a manifest, or its counts contradict each other. The message names ``place`` and
        the key.

    """
    try:
        value = parse_json(text, place)
        found = _Manifest.model_validate(value)
    except ValidationError as error:
        raise InputError(explain(error, _Manifest, place)) from None
    except BadJsonError as error:
        raise InputError(f"{place} is not a manifest: {error.why}. Publish again.") from None
    rows = [part.rows for part in found.parts]
    if sum(rows) != found.rows or rows != [shard.rows for shard in found.source.shards]:
        raise InputError(
            f"{place}: its parts have {sum(rows)} rows, which differs from its shards or from the "
            f"{found.rows} rows that it states. It was changed by hand, or cut off: publish again."
        )
    checked: dict[str, Any] = value
    return checked


def read_manifest(folder: Place) -> dict[str, Any]:
    """Return the manifest of a published version. Raises InputError if it does not name its own files."""
    path = folder / "manifest.json"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(
                f"{path} is larger than {MAX_BYTES >> 20} MiB, so it is not a manifest. Publish again."
            )
        manifest = parse_manifest(read_whole(path, root=folder).decode(), str(path))
    except (OSError, UnicodeDecodeError, ConnectorError) as error:
        raise InputError(
            f"{path} cannot be read: {error}. Give its owner's rights back, or copy the version again."
        ) from None
    if folder.parent.name == "versions" and manifest["version"] != folder.name:
        raise InputError(
            f"{path} names the version {manifest['version']!r}, and its folder is {folder.name!r}. Whoever "
            "withdraws or removes one would mean the other: give the folder its name back, or publish again."
        )
    if not isinstance(folder, Path):  # an object store has no links
        return manifest
    inside = folder.resolve()
    for part in manifest["parts"]:
        target = (folder / part["path"]).resolve()
        if not target.is_relative_to(inside):
            raise InputError(
                f"{folder / part['path']} leads out of its version, to {target}. Remove the link."
            )
        if target.exists() and not target.is_file():  # a pipe would be waited for
            raise InputError(
                f"{folder / part['path']} is not a regular file. Remove it, and copy the version again."
            )
    return manifest


def next_number(output: Place) -> int:
    """Return the number of the next publication: one more than the largest of the manifests."""
    names = published_versions(output)
    texts = read_many([version_folder(output, name) / "manifest.json" for name in names])
    # A text in JSON holds no bare quotes, so the pattern finds the key and nothing else.
    numbers = [int(found[1]) for text in texts if text for found in _NUMBER.finditer(text)]
    return max([0, *numbers]) + 1


def pointed_version(output: Place) -> str | None:
    """Return the name in ``CURRENT``; None if nothing is published. Raises InputError for an invalid name.

    On an object store the name is the first line, which is empty until a version is published.
    """
    try:
        text = read_whole(output / "CURRENT", root=output, max_bytes=MAX_CURRENT_BYTES).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, ConnectorError) as error:
        raise InputError(
            f"{output / 'CURRENT'} cannot be read: {error}. Restore it, or name a version."
        ) from None
    name = text.strip() if isinstance(output, Path) else text.partition("\n")[0]
    if not name and not isinstance(output, Path):
        return None
    if not NAME.fullmatch(name):
        raise InputError(
            f"{output / 'CURRENT'} holds {name[:60]!r}, which names no version. Run the recipe again."
        )
    return name


def published_versions(output: Place) -> list[str]:
    """Return the sorted names of an output's published versions, withdrawn ones included."""
    try:
        names = [entry.name for entry in (output / "versions").iterdir() if NAME.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    complete = exist_many([version_folder(output, name) / "manifest.json" for name in names])
    return sorted(name for name, is_complete in zip(names, complete, strict=True) if is_complete)


def check_published(output: Place, version: str) -> None:
    """Raise InputError, which names the nearest version, if an output has no version of this name."""
    if not is_published(output, version):
        known = published_versions(output)
        hint = nearest(version, known) or f" Published are: {', '.join(known) or 'none'}."
        raise InputError(f"There is no published version {version!r} in {output}.{hint}")


def check_parts(folder: Place, manifest: Mapping[str, Any]) -> None:
    """Raise InputError if a part of a published version is not there."""
    parts = [folder / part["path"] for part in manifest["parts"]]
    missing = [part for part, exists in zip(parts, exist_many(parts), strict=True) if not exists]
    if missing:
        raise InputError(
            f"{missing[0]} is not there: the version {manifest['version']} has lost {len(missing):,} of its "
            f"{len(parts):,} parts. Remove its folder {folder}, and run its recipe again: what operators "
            f"have computed is kept."
        )


def is_published(output: Place, version: str) -> bool:
    """Return whether the version is complete, that is, has a manifest, which is written last."""
    complete = (version_folder(output, version) / "manifest.json").exists()
    return complete and NAME.fullmatch(version) is not None
