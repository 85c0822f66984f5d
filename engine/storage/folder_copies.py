"""Files of a folder to and from an object store, several at the same time."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from connectors.storage import ObjectPath, Tag
from engine.core.errors import InputError

MANY = 16
Stamps = dict[str, tuple[int, int]]


def fetch(source: ObjectPath, names: Sequence[str], folder: Path) -> None:
    """Copy objects into a folder, each whole or not. Raises InputError for a name that leads out of it."""
    for name in names:
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts:
            raise InputError(f"{source}: {name!r} leads out of its folder. Remove it.")
        (folder / place).parent.mkdir(parents=True, exist_ok=True)

    def get(name: str) -> None:
        content = (source / name).read_bytes()
        with tempfile.NamedTemporaryFile(dir=folder.parent, delete=False) as file:
            file.write(content)
        Path(file.name).replace(folder / name)

    with ThreadPoolExecutor(MANY) as pool:
        list(pool.map(get, names))


def put(folder: Path, names: Sequence[str], target: ObjectPath) -> dict[str, Tag]:
    """Copy files of a folder to a store; which content each object has then."""
    with ThreadPoolExecutor(MANY) as pool:
        tags = pool.map(lambda name: (target / name).write_bytes((folder / name).read_bytes()), names)
        return dict(zip(names, tags, strict=True))


def stamps(folder: Path) -> Stamps:
    """Size and modification time of every file below a folder, by its path in it."""
    found = {path.relative_to(folder).as_posix(): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in sorted(found.items())}


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
