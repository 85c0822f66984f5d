"""A dataset that Hugging Face ``datasets`` saved to disk; its Arrow files are read without that package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from connectors.arrow_source import ArrowSource
from connectors.base import Connector, ConnectorError, CorruptError, Listing, SourceOptions, SourceSpec
from connectors.files import File, each, exists, reading, resolve, stat_file
from connectors.foundation.json_text import MAX_BYTES, JsonTextError, parse_json_text
from connectors.foundation.messages import nearest
from connectors.links import check_links, check_regular
from connectors.locations import inside
from connectors.schema import plain_schema

SPLITS, STATE, INFO = "dataset_dict.json", "state.json", "dataset_info.json"
FILES = ("Image", "Audio")
"""Features that are stored as a struct of ``bytes`` and ``path``."""


class HuggingFaceOptions(SourceOptions):
    """Options of a source in the format ``huggingface``."""

    split: str | None = Field(default=None, description="Split of a saved DatasetDict to read")
    class_names: bool = Field(default=True, description="ClassLabel columns as names; false: as numbers")


class HuggingFace(Connector[HuggingFaceOptions]):
    """Opens sources of the format ``huggingface``."""

    name = "huggingface"
    summary = "Hugging Face datasets, as `save_to_disk` writes them; a shard is a run of record batches"
    markers = (SPLITS, INFO)
    Options = HuggingFaceOptions

    def open(self, spec: SourceSpec, options: HuggingFaceOptions) -> HuggingFaceSource:
        """Return a source that reads a Hugging Face dataset with the settings of ``spec`` and ``options``."""
        return HuggingFaceSource(spec, options)


@dataclass(frozen=True)
class HuggingFaceSource(ArrowSource):
    """A folder with ``state.json``, ``dataset_info.json`` and Arrow files, or one such folder for each split.

    Images and audio become their bytes, class labels their names, as ``options`` say.
    """

    options: HuggingFaceOptions

    def list(self) -> Listing:
        """List files and shards. The features count as part of each file's content. Raises ConnectorError."""
        found = super().list()
        features = hashlib.sha256(json.dumps(self._features(), sort_keys=True).encode()).hexdigest()[:16]
        known = {path: f"{identity},features:{features}" for path, identity in found.identities.items()}
        return replace(found, identities=known)

    def _files(self) -> Sequence[File]:
        folder = self._folder()
        if not exists(self.spec, inside(folder, STATE)):
            raise ConnectorError(
                f"{folder} has no {STATE}: save_to_disk did not write it. Save it so, or read its Arrow "
                f"files by a pattern, {inside(folder, '*.arrow')}, with source.format: arrow."
            )
        state = self._json(inside(folder, STATE))
        if state.get("_indices_data_files"):
            raise ConnectorError(
                f"{folder}: a file of indices selects its rows, which is not supported. Call "
                f"`flatten_indices()` and save it again."
            )
        try:
            names = [inside(folder, str(file["filename"])) for file in state["_data_files"]]
        except (KeyError, TypeError) as error:
            raise CorruptError(
                f"{folder}/{STATE} names no _data_files. Save the dataset again with save_to_disk."
            ) from error
        if "://" not in folder:
            where = resolve(folder, self.spec.root, self.spec.policy)[1]
            if not self.spec.policy.outside_links:
                check_links(where, hidden=True)
        return [*each(self.spec, names, partial(stat_file, self.spec))]

    def _schema(self, stored: pa.Schema) -> pa.Schema:
        features = self._features()
        kinds = {field.name: self._type(field, features.get(field.name)) for field in plain_schema(stored)}
        return pa.schema([*kinds.items()])

    def _converted(self, table: pa.Table) -> pa.Table:
        features = self._features()
        for index, name in enumerate(table.schema.names):
            feature = features.get(name)
            column = table.column(index)
            if _is_file(column.type, feature):
                table = table.set_column(index, name, pc.struct_field(column, "bytes"))
            elif self._is_class(feature):
                names = pa.array(features[name]["names"], pa.string())
                known = pc.and_(pc.greater_equal(column, 0), pc.less(column, len(names)))
                table = table.set_column(index, name, names.take(pc.if_else(known, column, None)))
        return table

    def _type(self, stored: pa.Field, feature: Any) -> pa.DataType:
        if _is_file(stored.type, feature):
            return stored.type.field("bytes").type
        return pa.string() if self._is_class(feature) else stored.type

    def _is_class(self, feature: Any) -> bool:
        known = isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
        return bool(known) and self.options.class_names

    def _features(self) -> dict[str, Any]:
        """Return the features of ``dataset_info.json``, by column."""
        found = self._json(inside(self._folder(), INFO)).get("features")
        return found if isinstance(found, dict) else {}

    def _folder(self) -> str:
        """Return the folder of the dataset, or of the chosen split."""
        path = self.spec.path
        split = self.options.split
        if not exists(self.spec, inside(path, SPLITS)):
            if split is not None:
                raise ConnectorError(f"{path} is one dataset without splits. Leave source.options.split out.")
            return path
        names = [str(name) for name in self._json(inside(path, SPLITS)).get("splits", [])]
        if split is None and len(names) == 1:
            return inside(path, names[0])
        if split not in names:
            hint = nearest(split, names) if split else ""
            raise ConnectorError(
                f"{path} holds the splits {', '.join(names)}: choose one with source.options.split.{hint}"
            )
        return inside(path, str(split))

    def _json(self, path: str) -> dict[str, Any]:
        filesystem, where = resolve(path, self.spec.root, self.spec.policy)
        if "://" not in path and not self.spec.policy.outside_links:
            check_regular(resolve(self.spec.path, self.spec.root, self.spec.policy)[1], where)
        with reading(path), filesystem.open_input_file(where) as file:
            text = file.read(MAX_BYTES + 1)
        try:
            found = parse_json_text(text)
            if not isinstance(found, dict):
                raise JsonTextError("it is not an object")
        except JsonTextError as error:
            raise CorruptError(f"{path} describes no dataset: {error}. Save the dataset again.") from error
        return found


def _is_file(kind: pa.DataType, feature: Any) -> bool:
    named = isinstance(feature, dict) and feature.get("_type") in FILES
    return named and pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
