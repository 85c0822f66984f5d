"""The package of a job: one zip file with the recipe, the code and, on request, a folder of the user.

The zip depends only on names and bytes, so that Ray uploads the same content once.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine.core.errors import InputError
from operators.counts import count

PACKAGES = ("engine", "operators", "connectors")
RECIPE = "recipe.yaml"
MAX_BYTES = 100 * 2**20
"""Largest size of a package before compression. Data belong on storage that the cluster can read."""
NEVER_SHIPPED = (".*", "__pycache__", "*.pyc", "node_modules", "mlruns", "*.egg-info")
"""Never shipped from a working directory: hidden files, which may hold secrets, and generated files."""
INSTALLED = "installed"
SOURCE = "source"


@dataclass(frozen=True)
class Contents:
    """Files by their name in the zip, and a description of where they come from."""

    files: dict[str, Path | bytes]
    descriptions: tuple[str, ...]

    @property
    def n_bytes(self) -> int:
        """Number of bytes before compression."""
        return sum(_size(entry) for entry in self.files.values())

    def write(self, path: Path) -> None:
        """Write the zip file. Raises InputError if the files exceed ``MAX_BYTES``."""
        if self.n_bytes > MAX_BYTES:
            raise InputError(_too_much(self))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(self.files):
                entry = self.files[name]
                info = zipfile.ZipInfo(name)  # dated 1980, so that the same files make the same bytes
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                archive.writestr(info, entry if isinstance(entry, bytes) else entry.read_bytes())


def collect(
    recipe: bytes, *, code: str | Path, working_dir: Path | None = None, excludes: Sequence[str] = ()
) -> Contents:
    """Collect all files that a job needs.

    Parameters
    ----------
    recipe
        The resolved recipe, YAML.
    code
        ``"source"``: the packages of the Rowsieve that runs here; ``"installed"``: none, as the cluster has
        Rowsieve; or a wheel, which is unpacked. Rowsieve's dependencies must be on the cluster in any case.
    working_dir
        A folder whose files are shipped, except ``NEVER_SHIPPED``, ``excludes`` and folders named as in
        ``PACKAGES``.
    excludes
        Patterns of file and folder names, or of paths below ``working_dir``, such as ``data/*.csv``.

    Raises
    ------
    InputError
        The wheel or the folder cannot be used.

    """
    files: dict[str, Path | bytes] = {}
    descriptions = [RECIPE]
    if working_dir is not None:
        shipped = dict(_folder(working_dir, excludes))
        files |= shipped
        descriptions.append(f"{count(len(shipped), 'file')} of {working_dir}")
    if isinstance(code, Path):
        files |= _wheel(code)
        descriptions.append(code.name)
    elif code == SOURCE:
        ours = dict(_source())
        files |= ours
        descriptions.append(f"Rowsieve's {len(ours)} source files")
    return Contents(files | {RECIPE: recipe}, tuple(descriptions))


def _folder(folder: Path, excludes: Sequence[str]) -> Iterator[tuple[str, Path]]:
    if not folder.is_dir():
        raise InputError(f"--working-dir {folder}: there is no such folder. Name one that exists.")
    for here, names, files in os.walk(folder):
        below = PurePosixPath(Path(here).relative_to(folder).as_posix())
        top = here == str(folder)
        names[:] = [n for n in names if not (_left_out(below / n, excludes) or (top and n in PACKAGES))]
        if linked := next((name for name in names if Path(here, name).is_symlink()), None):
            raise InputError(
                f"--working-dir {folder}: {below / linked} is a link to a folder, "
                f"{Path(here, linked).resolve()}, and would not be shipped. Copy the folder, or leave it out "
                f"with --exclude."
            )
        for name in files:
            path = Path(here, name)
            if _left_out(below / name, excludes) or not path.is_file():
                continue
            if not path.resolve().is_relative_to(folder.resolve()):
                raise InputError(
                    f"--working-dir {folder}: {below / name} is a link to {path.resolve()}, which lies "
                    f"outside and would be shipped. Copy the file, or leave it out with --exclude."
                )
            yield str(below / name), path


def _left_out(path: PurePosixPath, excludes: Sequence[str]) -> bool:
    patterns = (*NEVER_SHIPPED, *(pattern.rstrip("/") for pattern in excludes))
    return any(fnmatch.fnmatch(path.name, p) or fnmatch.fnmatch(str(path), p) for p in patterns)


def _source() -> Iterator[tuple[str, Path]]:
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec else []
        for path in sorted(Path(places[0]).rglob("*")) if places else []:
            inner = path.relative_to(places[0])
            if path.suffix in (".py", ".j2", ".json") and "__pycache__" not in inner.parts:
                yield f"{name}/{inner.as_posix()}", path


def _wheel(path: Path) -> dict[str, Path | bytes]:
    """Read a wheel's files.

    The wheel itself is not shipped: Ray would install all its dependencies, and identifies a wheel by its
    name alone.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = sum(info.file_size for info in archive.infolist())
            if sizes > MAX_BYTES:
                raise InputError(
                    f"--wheel {path}: {sizes >> 20} MiB unpacked, {MAX_BYTES >> 20} allowed. Ship no data."
                )
            found: dict[str, Path | bytes] = {
                info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()
            }
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(
            f"--wheel {path}: cannot be read as a wheel ({error}). Make one with: pip wheel --no-deps ."
        ) from None
    if "engine/__init__.py" not in found:
        raise InputError(
            f"--wheel {path}: this is not a wheel of Rowsieve. Make one with: pip wheel --no-deps ."
        )
    return found


def _size(entry: Path | bytes) -> int:
    return len(entry) if isinstance(entry, bytes) else entry.stat().st_size


def _too_much(contents: Contents) -> str:
    largest = sorted(contents.files, key=lambda name: _size(contents.files[name]), reverse=True)[:3]
    shown = ", ".join(f"{name} ({_size(contents.files[name]) / 2**20:.1f} MiB)" for name in largest)
    return (
        f"The job would ship {contents.n_bytes / 2**20:.0f} MiB, and {MAX_BYTES >> 20} MiB is the limit. "
        f"The largest: {shown}. Leave them out with --exclude; data belong on storage the cluster reads."
    )
