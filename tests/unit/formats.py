"""The same rows in every file format, for tests that hold for all of them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.feather as pf
import pyarrow.parquet as pq

Row = Mapping[str, Any]


def rows(n: int = 23) -> list[dict[str, Any]]:
    """A number, a real number with gaps, a text of any kind, a class."""
    return [
        {
            "n": i,
            "x": None if i % 7 == 3 else (i + 0.5) / 8,
            "t": 'äö, "€😀'[: i % 8] + f"t{i}",
            "y": "ab"[i % 2],
        }
        for i in range(n)
    ]


SCHEMA = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("t", pa.string()), ("y", pa.string())])


def as_table(found: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([*map(dict, found)], schema=None if found else SCHEMA)


def parquet(folder: Path, name: str, found: Sequence[Row]) -> Path:
    path = folder / f"{name}.parquet"
    pq.write_table(as_table(found), path, row_group_size=4)
    return path


def hive(folder: Path, name: str, found: Sequence[Row]) -> Path:
    """One file a class; the class is in the folder's name alone."""
    y = "none"
    for y in sorted({row["y"] for row in found}):
        (folder / f"y={y}").mkdir(parents=True, exist_ok=True)
        part = [{key: value for key, value in row.items() if key != "y"} for row in found if row["y"] == y]
        pq.write_table(as_table(part), folder / f"y={y}" / f"{name}.parquet", row_group_size=4)
    return folder / f"y={y}" / f"{name}.parquet"


def csv(folder: Path, name: str, found: Sequence[Row]) -> Path:
    path = folder / f"{name}.csv"
    pv.write_csv(as_table(found), path)
    return path


def jsonl(folder: Path, name: str, found: Sequence[Row]) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_bytes(lines(found))
    return path


def jsonl_gz(folder: Path, name: str, found: Sequence[Row]) -> Path:
    path = folder / f"{name}.jsonl.gz"
    path.write_bytes(gzip.compress(lines(found)))
    return path


def csv_bz2(folder: Path, name: str, found: Sequence[Row]) -> Path:
    plain = csv(folder, name, found)
    path = plain.with_suffix(".csv.bz2")
    path.write_bytes(bz2.compress(plain.read_bytes()))
    plain.unlink()
    return path


def lines(found: Sequence[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found).encode()


def ipc_file(folder: Path, name: str, found: Sequence[Row]) -> Path:
    path = folder / f"{name}.arrow"
    table = as_table(found)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return path


def ipc_stream(folder: Path, name: str, found: Sequence[Row]) -> Path:
    path = folder / f"{name}.arrows"
    table = as_table(found)
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return path


def feather(folder: Path, name: str, found: Sequence[Row]) -> Path:
    path = folder / f"{name}.feather"
    pf.write_feather(as_table(found), path, compression="zstd", chunksize=4)
    return path


def huggingface(folder: Path, name: str, found: Sequence[Row]) -> Path:
    """As `datasets` 4 saves it: state, info, and streams; the class is a ClassLabel."""
    table = as_table([{**row, "y": "ab".index(row["y"])} for row in found])
    path = folder / "data-00000-of-00001.arrow"
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    features = {
        "n": {"dtype": "int64", "_type": "Value"},
        "x": {"dtype": "float64", "_type": "Value"},
        "t": {"dtype": "string", "_type": "Value"},
        "y": {"names": ["a", "b"], "_type": "ClassLabel"},
    }
    info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
    state = {
        "_data_files": [{"filename": path.name}],
        "_fingerprint": "2f1ef7ca2e4aa2ca",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "state.json").write_text(json.dumps(state))
    return path


def webdataset(folder: Path, name: str, found: Sequence[Row]) -> Path:
    """n as .id, x as .npy of no or one value, t as .txt, y inside .json."""
    path = folder / f"{name}.tar"
    with tarfile.open(path, "w") as tar:
        for place, row in enumerate(found):
            key = f"{name}/{place:06d}"
            add(tar, f"{key}.id", str(row["n"]).encode())
            add(tar, f"{key}.txt", row["t"].encode())
            add(tar, f"{key}.json", json.dumps({"y": row["y"]}, indent=1).encode())
            if row["x"] is not None:
                file = io.BytesIO()
                np.save(file, np.array([row["x"]]))
                add(tar, f"{key}.npy", file.getvalue())
    return path


def images(folder: Path, name: str, found: Sequence[Row]) -> Path:
    """One file a row, which holds it as JSON: sources do not decode images. Its folder is its class."""
    path = folder
    for row in found:
        path = folder / row["y"] / f"{name}{row['n']:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(row))
    return path


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


WRITERS: dict[str, Callable[[Path, str, Sequence[Row]], Path]] = {
    function.__name__: function
    for function in (
        parquet,
        hive,
        csv,
        csv_bz2,
        jsonl,
        jsonl_gz,
        ipc_file,
        ipc_stream,
        feather,
        huggingface,
        webdataset,
        images,
    )
}
RENAMES = {"images": {"label": "y"}, "webdataset": {"id": "n", "txt": "t", "json.y": "y", "npy": "x"}}
"""New names under which a format's columns are those of :func:`rows`."""


def plain(found: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as :func:`rows` makes them, by number: WebDataset has vectors, Hive another order."""

    def scalar(value: Any) -> Any:
        return value[0] if isinstance(value, list) else value

    return sorted(
        ({key: scalar(row[key]) for key in ("n", "x", "t", "y")} for row in found), key=lambda row: row["n"]
    )
