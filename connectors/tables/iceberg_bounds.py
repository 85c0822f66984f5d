"""Bounds of what an Iceberg table's metadata take in memory: metadata files, manifests, deleted rows.

Metadata files and manifests are bounded where pyiceberg reads them. Files of deleted rows are checked before
it does, since it makes a list of all their rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import zstandard
from pyiceberg import manifest, serializers
from pyiceberg.avro import file as avro_file
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyroaring import BitMap

from connectors.errors import ConnectorError
from connectors.foundation.json_text import parse_json_text
from connectors.links import check_kind
from connectors.parquet_footer import open_parquet
from connectors.policy import current_policy
from connectors.tables.common import MetadataError
from connectors.tables.iceberg_avro import DAMAGE, MAX_FILE_BYTES, BoundedAvroFile, CheckedDecoder
from connectors.tables.orc_bounds import check_orc

MAX_METADATA_BYTES = 64 * 2**20
"""Bytes of a metadata file, unpacked; pyiceberg makes objects of them, which take more."""
CHUNK_BYTES = 2**20
FILES_AT_ONCE = 8
MAX_DELETED = 50_000_000
"""Rows that a file of deleted rows may name."""
MAX_DELETED_BYTES = 2**30
"""What the rows of such a file of ORC may take in memory, with the path of a data file in each."""
PUFFIN, PUFFIN_END = b"PFA1", 12
MAX_BITMAPS = 1024
"""Bitmaps of a deletion vector, each for 2^32 rows."""


def bound_readers() -> None:
    """Put the bounded readers in the place of pyiceberg's.

    Raises ConnectorError where this version of pyiceberg reads in another way.
    """
    places: tuple[tuple[Any, str, Any], ...] = (
        (serializers.FromInputFile, "table_metadata", staticmethod(table_metadata)),
        (manifest, "AvroFile", BoundedAvroFile),
        (avro_file, "new_decoder", CheckedDecoder),
    )
    for place, name, bounded in places:
        if not hasattr(place, name):
            raise ConnectorError(
                f"This version of pyiceberg reads metadata in another way than Rowsieve can bound ({name}). "
                f"Install the version that deploy/constraints.txt names."
            )
        setattr(place, name, bounded)


def table_metadata(input_file: Any, encoding: str = "utf-8") -> TableMetadata:
    """Read a metadata file, which may be compressed.

    Raises ConnectorError where its place, which a catalog may state, is none that the policy allows or no
    file, and MetadataError for what it holds.
    """
    place = input_file.location
    current_policy().check_uri(place)
    check_kind(place)
    compressor = serializers.Compressor.get_compressor(place)
    found = bytearray()
    try:
        with input_file.open() as stream, compressor.stream_decompressor(stream) as unpacked:
            while len(found) <= MAX_METADATA_BYTES and (chunk := unpacked.read(CHUNK_BYTES)):
                found += chunk
        if len(found) <= MAX_METADATA_BYTES:
            return TableMetadataUtil.parse_raw(found.decode(encoding))
    except DAMAGE as error:
        raise MetadataError(f"{place} cannot be read: {type(error).__name__}. Restore it.") from error
    raise MetadataError(
        f"{place}, the metadata of a table, have more than the {MAX_METADATA_BYTES:,} bytes that are read: "
        f"they would be held in memory. Expire old snapshots of the table."
    )


def check_manifests(table: Any, paths: Iterable[str]) -> None:
    """Raise MetadataError for a manifest that is listed twice, and ConnectorError where all are too large."""
    names = list(paths)
    if len({*names}) < len(names):
        raise MetadataError(
            f"a manifest is listed twice in {table.metadata_location}, so that rows count twice. Repair the "
            f"table."
        )
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        current_policy().check_size(sum(pool.map(partial(_size, table), names)))


def _size(table: Any, path: str) -> int:
    return len(table.io.new_input(path))


def check_deletes(table: Any, files: Iterable[Any]) -> None:
    """Raise MetadataError for a file of deleted rows of a table that would take too much memory."""
    kinds = {file.file_path: str(file.file_format.value) for file in files}
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        list(pool.map(lambda path: _check_deleted(table, path, kinds[path]), kinds))


def _check_deleted(table: Any, path: str, kind: str) -> None:
    source = table.io.new_input(path)
    if len(source) > MAX_FILE_BYTES:
        raise MetadataError(_too_many(path, f"has {len(source):,} bytes, and {MAX_FILE_BYTES:,} are read"))
    with source.open() as stream:
        rows = vector_rows(path, stream.read()) if kind == "PUFFIN" else _table_rows(stream, kind, path)
    if rows > MAX_DELETED:
        raise MetadataError(_too_many(path, f"names {rows:,} rows, and {MAX_DELETED:,} are read"))


def _too_many(path: str, what: str) -> str:
    return f"{path}, a file of deleted rows, {what}. Have the table compacted, so that it has none."


def _table_rows(stream: Any, kind: str, path: str) -> int:
    if kind != "ORC":
        return int(open_parquet(stream, path).metadata.num_rows)
    return check_orc(stream, path, MAX_DELETED_BYTES, max_rows=MAX_DELETED)


def vector_rows(path: str, data: bytes) -> int:
    """Return the rows that the deletion vectors of a Puffin file name, of which some may be named twice."""
    try:
        if data[:4] != PUFFIN or data[-4:] != PUFFIN:
            raise ValueError("it is not a Puffin file")
        length = int.from_bytes(data[-PUFFIN_END:-8], "little")
        footer = parse_json_text(data[-length - PUFFIN_END : -PUFFIN_END])
        rows = 0
        for blob in footer["blobs"]:
            rows += _rows_of(_payload(data[blob["offset"] : blob["offset"] + blob["length"]], blob))
            if rows > MAX_DELETED:
                break
        return rows
    except DAMAGE as error:
        text = " ".join(str(error).split())[:300].rstrip(". ")
        raise MetadataError(f"{path} is not a file of deletion vectors, or a damaged one: {text}.") from error


def _payload(raw: bytes, blob: Any) -> bytes:
    if blob.get("compression-codec") is None:
        return raw
    if not 0 <= zstandard.frame_content_size(raw) <= MAX_FILE_BYTES:
        raise ValueError(f"a vector unpacks to more than {MAX_FILE_BYTES:,} bytes")
    return zstandard.ZstdDecompressor().decompress(raw)


def _rows_of(payload: bytes) -> int:
    """Return the rows of a vector, whose head is a length and a magic number of four bytes each."""
    data = memoryview(payload)[8 : 4 + int.from_bytes(payload[:4], "big")]
    count, at, last, rows = int.from_bytes(data[:8], "little"), 8, -1, 0
    for _ in range(count):
        key = int.from_bytes(data[at : at + 4], "little")
        if not last < key < MAX_BITMAPS:
            raise ValueError(f"a vector has the bitmap {key:,} of {count:,}, and {MAX_BITMAPS:,} are read")
        bitmap = BitMap.deserialize(bytes(data[at + 4 :]))
        at, last, rows = at + 4 + len(bitmap.serialize()), key, rows + len(bitmap)
    return rows
