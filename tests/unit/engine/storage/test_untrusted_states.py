"""States and parts in a shared output are untrusted, and so are this machine's copies of them."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.base import ConnectorError
from connectors.pickled_types import PICKLED
from connectors.storage import find_column, read_columns
from engine.core.errors import InputError
from engine.runs.runner import run
from engine.storage.object_run_store import local_cache
from engine.storage.state_files import check_state
from tests.data import small_recipe


def npy(array: np.ndarray, **header: object) -> bytes:
    buffer = io.BytesIO()
    if header:
        np.lib.format.write_array_header_1_0(
            buffer, {"descr": "<f8", "fortran_order": False, "shape": (), **header}
        )
        return buffer.getvalue()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", npy(np.zeros(1), shape=(10**12,)) + b"\0" * 10)
    return buffer.getvalue()


DAMAGED = {
    "state.json": b"[" * 100_000,
    "other.json": b"{",
    "objects.npy": npy(np.array([{"a": 1}], dtype=object)),
    "huge.npy": npy(np.zeros(1), shape=(10**12,)),
    "negative.npy": npy(np.zeros(1), shape=(-1,)),
    "text.npy": b"no array",
    "open.npy": b"\x93NUMPY\x01\x00\x0e\x00{'descr': (\n\n\n",
    "bomb.npz": bomb(),
    "text.npz": b"no archive",
    "model.safetensors": (2**62).to_bytes(8, "little") + b"{}",
    "list.safetensors": (2).to_bytes(8, "little") + b"[]",
    "rows.parquet": b"PAR1 no table PAR1",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_state_is_refused_and_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(DAMAGED[name])
    with pytest.raises(InputError, match=f"{name} is damaged or forged") as caught:
        check_state(tmp_path)
    assert "\n" not in str(caught.value)


def test_links_and_pipes_in_a_state(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    check_state(tmp_path / "s")
    check_state(tmp_path / "nowhere")
    (tmp_path / "s" / "x.json").symlink_to("/etc/hostname")
    with pytest.raises(InputError, match="leads out of its state"):
        check_state(tmp_path / "s")
    (tmp_path / "s" / "x.json").unlink()
    os.mkfifo(tmp_path / "s" / "x.json")
    with pytest.raises(InputError, match="regular file"):
        check_state(tmp_path / "s")


def test_good_states_pass(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.zeros(10_000), b=np.array("text"))
    np.save(tmp_path / "b.npy", np.asfortranarray(np.zeros((3, 4))))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "c.parquet")
    (tmp_path / "d.json").write_text("{}")
    check_state(tmp_path)


def test_packed_arrays_arrays_of_nothing_and_pickles_within_lists_are_refused(tmp_path: Path) -> None:
    """780 KB stood for .9 GB, and a shape of any size for values without bytes."""
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(10_000))
    with pytest.raises(InputError, match="are stored as they are"):
        check_state(tmp_path)
    (tmp_path / "a.npz").unlink()
    np.save(tmp_path / "a.npy", np.zeros(10**6, "V0"))
    with pytest.raises(InputError, match="1000000 values of"):
        check_state(tmp_path)
    (tmp_path / "a.npy").unlink()
    pickled = pa.field("item", pa.binary(), metadata={"ARROW:extension:name": PICKLED[0]})
    pq.write_table(pa.table({"x": pa.array([], pa.list_(pickled))}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="holds pickled Python objects"):
        check_state(tmp_path)


def test_a_text_that_is_stored_once_counts_in_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of 3,929 bytes took 2 GB: 20 MB of text in 60 rows."""
    monkeypatch.setattr("connectors.storage.MAX_SHARD", 2**20)
    part = tmp_path / "part.parquet"
    for column in (pa.array(["x" * 2**17] * 64), pa.array([["x" * 2**17]] * 64)):
        pq.write_table(pa.table({"a.b": column, "n": range(64)}), part)
        for read in (lambda: read_columns(part), lambda: find_column(part, "a.b")):
            with pytest.raises(ConnectorError, match="1048576 are the limit"):
                read()
        assert read_columns(part, ["n"]).num_rows == 64
    several = pa.table(
        {"a": pa.array([f"{k}" * 2**9 for k in range(10)] * 8).dictionary_encode(), "l": [["x"]] * 80}
    )
    pq.write_table(several, part, row_group_size=30)
    monkeypatch.setattr("connectors.storage.MAX_SHARD", 2**17)
    assert read_columns(part).equals(pq.read_table(part))


def test_a_run_does_not_read_a_forged_state(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    first = run(recipe)
    forged = list((tmp_path / "out" / "store").glob("*/state/*.npz"))
    forged += list((tmp_path / "out" / "store").glob("*/state/*.json"))
    assert forged
    for path in forged:
        path.write_bytes(DAMAGED["bomb.npz"] if path.suffix == ".npz" else b"[" * 100_000)
    for part in (tmp_path / "out" / "store").glob("*/part-00001.json"):
        part.unlink()  # so that the operators are applied again
    (tmp_path / "out" / "versions" / first.version / "manifest.json").unlink()
    with pytest.raises(InputError, match="is damaged or forged"):
        run(recipe)


def test_parts_hold_no_pickles_and_state_no_monstrous_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = pa.field("a", pa.binary(), metadata={"ARROW:extension:name": "ray.data.arrow_pickled_object"})
    pq.write_table(pa.table([pa.array([b"x"])], schema=pa.schema([kind])), tmp_path / "p.parquet")
    for read in (
        lambda: read_columns(tmp_path / "p.parquet"),
        lambda: find_column(tmp_path / "p.parquet", "a"),
    ):
        with pytest.raises(ConnectorError, match="pickled Python objects"):
            read()
    pq.write_table(pa.table({"a": np.arange(1000)}), tmp_path / "q.parquet")
    assert read_columns(tmp_path / "q.parquet").num_rows == 1000
    monkeypatch.setattr("connectors.storage.MAX_SHARD", 100)
    with pytest.raises(ConnectorError, match="its footer states"):
        read_columns(tmp_path / "q.parquet")


@pytest.mark.parametrize("kind", ["link", "open", "file", "foreign"])
def test_the_folder_of_copies_is_this_users_own(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if kind == "foreign":  # what this user makes belongs to another one than the one that asks
        user = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: user)
    folder = tmp_path / f"rowsieve-{os.getuid()}"
    if kind == "link":  # to a folder that is this user's, but was not chosen by this user
        (tmp_path / "mine").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "mine")
    elif kind == "open":
        folder.mkdir()
        folder.chmod(0o777)
    elif kind == "file":
        folder.touch(mode=0o600)
    else:
        folder.mkdir(mode=0o700)
    with pytest.raises(InputError, match="is a link, belongs to another user, or is open to others"):
        local_cache()
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder.unlink() if kind in ("link", "file") else folder.rmdir()
    folder = tmp_path / f"rowsieve-{os.getuid()}"
    assert local_cache().stat().st_mode & 0o777 == 0o700
    assert local_cache() == folder
