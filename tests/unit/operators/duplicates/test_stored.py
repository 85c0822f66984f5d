"""Signatures on disk: what is found near a row does not depend on the shards."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.duplicates import stored
from operators.duplicates.minhash import N_HASHES, Signatures, band_keys
from operators.duplicates.stored import Task, _Band, _Folder, search, texts_near_other_kind

THRESHOLD = 0.8
Array = Any


def store(state: Path, signed: Signatures, cuts: Sequence[int]) -> Path:
    """Store signatures (n, N_HASHES) of the row ids 0 to n - 1 as shards with these bounds have them."""
    for first, last in pairwise([0, *cuts, len(signed)]):
        folder = state / f"texts-{first:015d}"
        folder.mkdir(parents=True)
        keys = band_keys(signed[first:last], THRESHOLD)
        order = np.argsort(keys, axis=1, kind="stable")
        np.save(folder / "ids.npy", np.arange(first, last))
        np.save(folder / "signatures.npy", signed[first:last])
        np.save(folder / "keys.npy", np.take_along_axis(keys, order, axis=1))
        np.save(folder / "order.npy", order.astype(np.uint32))
    return state


def changed(signed: Array, random: np.random.Generator, n: int) -> Array:
    """Change ``n`` of the hashes of a text."""
    found = signed.copy()
    found[random.choice(N_HASHES, n, replace=False)] = random.integers(0, 2**32, n, dtype=np.uint32)
    return found


@pytest.mark.parametrize("cuts", [(), (300,), (7, 120, 301)])
def test_a_near_row_behind_many_of_the_own_kind_is_found(cuts: Sequence[int], tmp_path: Path) -> None:
    """The oldest 256 rows of a key in each shard were compared, and all of them were of the row's kind."""
    random = np.random.default_rng(0)
    oldest = random.integers(0, 2**32, N_HASHES, dtype=np.uint32)
    asked, other = oldest.copy(), oldest.copy()  # of 6 hashes in each band, 2 of 21 bands are the same in all
    asked[12:126:6] += 1
    other[12:126:6] += 1
    other[13:126:6] += 1
    kinds = np.array([0] * 300 + [1, 0], np.int8)
    state = store(tmp_path, np.stack([oldest] * 300 + [other, asked]), cuts)
    found = texts_near_other_kind(state, THRESHOLD, np.array([301]), kinds[301:], lambda ids: kinds[ids])
    assert found.tolist() == [True]


@given(seed=st.integers(0, 1000), cuts=st.sets(st.integers(1, 59), max_size=4), most=st.integers(1, 5))
def test_rows_near_another_kind_are_those_of_all_pairs(
    seed: int, cuts: set[int], most: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    random = np.random.default_rng(seed)
    heads = random.integers(0, 2**32, (3, N_HASHES), dtype=np.uint32)
    signed = np.stack([changed(heads[k % 3], random, int(random.integers(0, 30))) for k in range(60)])
    kinds = random.integers(-1, 3, 60).astype(np.int8)
    expected = np.zeros(60, np.bool_)
    for keys in band_keys(signed, THRESHOLD):
        for row in range(60):
            older = np.flatnonzero(
                (keys[:row] == keys[row]) & (kinds[:row] >= 0) & (kinds[:row] != kinds[row])
            )
            expected[row] |= ((signed[older[:most]] == signed[row]).mean(axis=1) >= THRESHOLD).any()
    state = store(tmp_path_factory.mktemp("state"), signed, sorted(cuts))
    asked = np.flatnonzero(kinds >= 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "COMPARED", most)
        found = texts_near_other_kind(state, THRESHOLD, asked, kinds[asked], lambda ids: kinds[ids])
    np.testing.assert_array_equal(found, expected[asked])


def test_each_file_of_a_shard_is_opened_once_and_only_keys_where_none_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = np.random.default_rng(0).integers(0, 2**32, (40, N_HASHES), dtype=np.uint32)
    signed[39] = signed[0]
    state, opened, load = store(tmp_path, signed, (10, 20, 30)), list[str](), np.load

    def recorded(path: Path, **options: Any) -> Any:
        opened.append(f"{path.parent.name[-2:]} {path.name}")
        return load(path, **options)

    monkeypatch.setattr(np, "load", recorded)
    kinds = np.arange(40) % 2
    found = texts_near_other_kind(
        state, THRESHOLD, np.array([38, 39]), kinds[38:], lambda ids: kinds[ids].astype(np.int8)
    )
    assert found.tolist() == [False, True]
    of_others = [name for name in opened if not name.startswith("30")]
    near = [f"00 {name}.npy" for name in ("ids", "keys", "order", "signatures")]
    assert sorted(of_others) == [*near, "10 keys.npy", "20 keys.npy"]


def test_the_search_has_one_folder_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All folders were open at once, and 340 of them were more files than a process may have open."""
    signed = np.random.default_rng(0).integers(0, 2**32, (40, N_HASHES), dtype=np.uint32)
    signed[39] = signed[0]
    state, load = store(tmp_path, signed, range(1, 40)), np.load
    opened, most = list[weakref.ref[Any]](), 0

    def recorded(path: Path, **options: Any) -> Any:
        nonlocal most
        found = load(path, **options)
        opened.append(weakref.ref(found))
        most = max(most, sum(one() is not None for one in opened))
        return found

    monkeypatch.setattr(np, "load", recorded)
    assert search(state, THRESHOLD, 5, Task(0, 0, 1)) == 1
    assert most <= 4


@given(keys=st.lists(st.sampled_from([0, 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]), max_size=9))
def test_slices_of_a_band_are_ranges_that_together_hold_each_key_once(
    keys: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    state = tmp_path_factory.mktemp("state")
    np.save(state / "keys.npy", np.array([sorted(keys)], np.uint64))
    band = _Band(_Folder(state), 0)
    slices = [band.slice(Task(0, part, 3)) for part in range(3)]
    assert np.concatenate(slices).tolist() == list(range(len(keys)))
    held = [set(band.keys[rows].tolist()) for rows in slices]
    assert sum(map(len, held)) == len(set(keys))
