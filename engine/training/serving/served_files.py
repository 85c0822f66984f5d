"""Checks of the files of a served model, which may come from a stranger or from a shared output.

Reading them runs no code. The checks here make sure that every file has the form that
``serving.write_served_model`` writes, so that an error of a damaged or forged file names the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError

from engine.core.errors import InputError
from engine.core.json_files import read_json
from engine.core.policy import VARIABLES, current_policy
from engine.storage.state_files import check_state

REMEDY = "train the model again"
MAX_ENTRIES = 2**20
"""Entries of a vector column: a larger number in a forged type asks for memory that no row has."""


class _Encoder(BaseModel):
    name: StrictStr
    params: dict[str, Any]


class _Texts(BaseModel):
    missing: list[StrictStr]
    strip: StrictBool


class _Reading(BaseModel):
    model_config = ConfigDict(extra="allow")

    format: StrictStr | None = None
    options: dict[str, Any] | None = None
    encoding: StrictStr | None = None
    rename: dict[StrictStr, StrictStr] | None = None
    flatten: list[StrictStr] | None = None


class _Description(BaseModel):
    version: StrictStr
    classes: list[StrictBool | StrictInt | StrictFloat | StrictStr]
    features: list[StrictStr]
    widths: list[StrictInt | None]
    encoder: _Encoder | None
    texts: _Texts | None = None
    reading: _Reading | None = None
    target: StrictStr | None = None


def check_files(folder: Path) -> None:
    """Check the files of a served model before they are read.

    Raises
    ------
    InputError
        A link leads out of the folder, a file is a pipe or is forged, or there are more files or bytes than
        the administrator's policy allows. The message names the file.

    """
    model_files(folder)
    check_state(folder, REMEDY)


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model, sorted. Raises InputError if they are too many or too large.

    The limits are those of the administrator's policy, since whoever made the model chose its files.
    """
    files: list[Path] = []
    for path in folder.rglob("*"):
        if path.is_file():
            files.append(path)
        check_limits(str(folder), len(files), 0)
    sizes = {path: path.stat().st_size for path in files}
    largest = max(sizes, key=lambda path: sizes[path], default=folder)
    check_limits(f"{folder} (its largest file is {largest.relative_to(folder)})", 0, sum(sizes.values()))
    return sorted(files)


def check_limits(model: str, n_files: int, n_bytes: int) -> None:
    """Raise InputError, which names the model and the remedy, beyond the administrator's limits."""
    policy = current_policy()
    for key, found, most in (
        ("max_model_files", n_files, policy.max_model_files),
        ("max_model_bytes", n_bytes, policy.max_model_bytes),
    ):
        if found > most:
            kind = key.rpartition("_")[2]
            raise InputError(
                f"{model} holds more than the {most:,} {kind} that a model may have on this "
                f"installation, and is not read. Remove what does not belong to the model; the "
                f"administrator can raise {VARIABLES[key]}."
            )


def read_description(path: Path, n_classes: int) -> dict[str, Any]:
    """Return the description of a served model, checked, from its ``serving.json``.

    Parameters
    ----------
    path
        The file.
    n_classes
        Number of the model's classes; 0 for a regression.

    Raises
    ------
    InputError
        It does not describe a served model with this number of classes.
    """
    with naming(path):
        found: dict[str, Any] = read_json(path)
        described = _Description.model_validate(found)
        if (described.target is None) != (n_classes > 0):
            raise ValueError(f"target is {described.target!r}, and the model has {n_classes:,} classes")
        if len(described.classes) != n_classes:
            raise ValueError(f"{len(described.classes):,} classes are named, and the model has {n_classes:,}")
    return found


def check_columns(path: Path, schema: pa.Schema | None, names: list[str]) -> None:
    """Raise InputError unless the types of the columns are those of the model's columns ``names``."""
    if schema is None:
        return
    with naming(path):
        if lacking := [name for name in names if name not in schema.names]:
            raise ValueError(f"the column {lacking[0]!r}, which the model reads, has no type")
        if len(set(schema.names)) < len(schema.names):
            raise ValueError("two columns have one name")
        for field in schema:
            if not _is_readable(field.type):
                raise ValueError(f"the column {field.name!r} has the type {str(field.type)[:100]}")


def _is_readable(kind: pa.DataType) -> bool:
    """Return whether a column of a source may have the type: a scalar, a struct or list of them."""
    if isinstance(kind, pa.ExtensionType) or pa.types.is_union(kind) or pa.types.is_run_end_encoded(kind):
        return False
    if pa.types.is_struct(kind):
        return all(not pa.types.is_nested(field.type) for field in kind)
    if not pa.types.is_nested(kind):
        return True
    small = not pa.types.is_fixed_size_list(kind) or kind.list_size <= MAX_ENTRIES
    return small and not pa.types.is_map(kind) and not pa.types.is_nested(kind.value_type)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn whatever the reader of a forged file raises into an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise _forged(path, f"{place}: {first['msg']}") from None
    except Exception as error:  # every operator's reader has errors of its own, and so has Arrow
        raise _forged(path, str(error) or type(error).__name__) from None


def _forged(path: Path, text: str) -> InputError:
    reason = " ".join(text.split())[:300].rstrip(". ")
    return InputError(
        f"{path} is not a file of a served model: {reason}. It is damaged or forged: train the model again "
        f"and register it."
    )
