"""A folder of Parquet files to write to: one folder a version, which appears whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors.base import ConnectorError
from connectors.tables.exporting import Begun, Edition, Export, ParquetWriter

RECORD = "_winnow.json"
"""Readers leave out names that begin with an underscore."""


@dataclass(frozen=True)
class ParquetExport(Export):
    """See :class:`connectors.tables.exporting.Export`. The edition stands in ``_winnow.json``.

    Local folders only: object stores cannot rename a folder.
    """

    format = "parquet"

    def held(self, edition: Edition) -> str:
        """See :class:`Export`."""
        return f"folder {edition.version}" if self._has(edition) else ""

    def begin(self, schema: pa.Schema, edition: Edition) -> Begun:
        """See :class:`Export`. Raises ConnectorError for mode ``overwrite`` and object stores too."""
        if "://" in self.path:
            raise ConnectorError(
                f"{self.path}: an object store cannot make a folder of Parquet files appear whole. Export to "
                f"delta, iceberg or lance there."
            )
        if self.mode == "overwrite":
            raise ConnectorError(
                f"{self.path}: Parquet files cannot be replaced all at once. Export with mode create or "
                f"append, or to delta, iceberg or lance."
            )
        folder = Path(self.path)
        self.check_absent(
            folder.is_dir() and any(not entry.name.startswith("_") for entry in folder.iterdir())
        )
        staged = folder / f"_{edition.version}"
        shutil.rmtree(staged, ignore_errors=True)
        return Begun(ParquetWriter(str(staged), schema, edition), partial(_commit, staged, edition))

    def _has(self, edition: Edition) -> bool:
        try:
            text = (Path(self.path) / edition.version / RECORD).read_text("utf-8")
        except OSError:
            return False
        return bool(json.loads(text) == edition.properties)


def _commit(staged: Path, edition: Edition, files: Sequence[dict[str, Any]]) -> str:
    (staged / RECORD).write_text(json.dumps(edition.properties), "utf-8")
    try:
        staged.rename(staged.with_name(edition.version))
    except OSError as error:
        raise ConnectorError(f"{staged.with_name(edition.version)}: {error.strerror}. Remove it.") from error
    return f"folder {edition.version}"
