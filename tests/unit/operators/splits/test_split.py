"""The split against a sort of all rows by a hash written in plain Python, whatever the shards."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from operators.base import FEATURES, GROUP, IS_OUTLIER, LABEL, SPLIT, VECTOR
from operators.hashing import END, row_hashes
from operators.splits.at_random import Random
from operators.splits.hashed_split import PARTS, Search, assign_parts, histograms, part_sizes
from operators.splits.params import RandomParams
from tests.unit.in_memory import run_operator, split_table

Row = tuple[int, int, bool]
rows = st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 2), st.booleans()), min_size=1, max_size=60)
shares = st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.45, 0.5])


def splitmix64(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) % END
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % END
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % END
    return x ^ (x >> 31)


def content(row: int) -> int:
    """The identity of a row whose only feature is its number, a float32."""
    bits = int(np.float32(row).view(np.uint32))
    return bits * (splitmix64(0 ^ salted(0, "row identity/content")) | 1) % END


def salted(seed: int, purpose: str) -> int:
    salt = int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "little")
    return splitmix64(splitmix64(seed) ^ salt)


def reference(found: list[Row], params: RandomParams, seed: int) -> list[str]:
    parts, key = ["train"] * len(found), salted(seed % END, "split/parts")
    members: dict[object, list[int]] = {}
    for row, (y, group, outlier) in enumerate(found):
        if params.drop_outliers and outlier:
            parts[row] = "dropped"
        else:
            members.setdefault((y, group) if params.stratify_by_group else None, []).append(row)
    for held in members.values():
        order = sorted(held, key=lambda row: splitmix64(content(row) ^ key))
        n_validation = round(params.validation * len(held))
        for row in order[:n_validation]:
            parts[row] = "validation"
        for row in order[n_validation : n_validation + round(params.test * len(held))]:
            parts[row] = "test"
    return parts


def as_table(found: list[Row]) -> pa.Table:
    y, group, outlier = zip(*found, strict=True)
    return pa.table(
        {
            LABEL: pa.array(y, pa.int32()),
            GROUP: pa.array(group, pa.int32()),
            IS_OUTLIER: pa.array(outlier),
            FEATURES: pa.array([[float(row)] for row in range(len(found))], VECTOR),
        }
    )


@given(
    found=rows,
    cuts=st.lists(st.integers(0, 60), max_size=4),
    validation=shares,
    test=shares,
    stratify=st.booleans(),
    drop=st.booleans(),
    seed=st.integers(0, 2**63),
)
def test_rows_are_split_as_by_sorting(
    found: list[Row], cuts: list[int], validation: float, test: float, stratify: bool, drop: bool, seed: int
) -> None:
    if validation + test >= 1:
        test = 0.0
    params = RandomParams(validation=validation, test=test, stratify_by_group=stratify, drop_outliers=drop)
    with TemporaryDirectory() as folder:
        result, metrics = run_operator(Random(params), split_table(as_table(found), cuts), Path(folder), seed)
    expected = reference(found, params, seed)
    assert result[SPLIT].to_pylist() == expected
    assert {part: metrics[part] for part in PARTS} == {part: expected.count(part) for part in PARTS}
    assert result.schema == pa.schema(list(Random(params).adds))
    assert result[SPLIT].chunk(0).dictionary.to_pylist() == ["train", "validation", "test", "dropped"]


@given(row_ids=st.lists(st.integers(0, 2**63 - 1), unique=True, max_size=20), seed=st.integers(0, 2**64 - 1))
def test_hashes_are_splitmix64(row_ids: list[int], seed: int) -> None:
    found = row_hashes(np.array(row_ids, np.int64), seed).tolist()
    assert found == [splitmix64(row ^ splitmix64(seed)) for row in row_ids]
    assert len(set(found)) == len(row_ids)


near = st.integers(0, 2**64 - 1).flatmap(
    lambda base: st.sets(st.integers(0, 600).map(lambda step: (base + step) % END), max_size=30)
)


@given(hashes=st.one_of(near, st.sets(st.integers(0, END - 1), max_size=30)), data=st.data())
@example(hashes={0, END - 1}, data=None)
def test_any_rank_is_found_exactly(hashes: set[int], data: st.DataObject | None) -> None:
    rank = data.draw(st.integers(0, len(hashes))) if data else len(hashes)
    values = np.array(sorted(hashes), np.uint64)
    keys = np.full(len(values), 5)
    result: Search | int = Search(5, rank)
    rounds = 0
    while isinstance(result, Search):
        result = result.narrow(histograms(keys, values, [result])[0])
        rounds += 1
    assert rounds <= 8
    assert sum(value < result for value in hashes) == rank
    parts = assign_parts(keys, values, {5: (result, result)})
    assert [PARTS[part] for part in parts] == ["validation"] * rank + ["train"] * (len(hashes) - rank)


def test_parts_are_never_more_than_the_stratum() -> None:
    assert part_sizes(3, 0.5, 0.49) == (2, 1)
    assert part_sizes(1, 0.6, 0.39) == (1, 0)
    assert part_sizes(0, 0.2, 0.2) == (0, 0)


def test_seeds_differ() -> None:
    table = as_table([(0, 0, False)] * 200)
    found = []
    for seed in (0, 1):
        with TemporaryDirectory() as folder:
            found.append(
                run_operator(Random(RandomParams()), [table], Path(folder), seed)[0][SPLIT].to_pylist()
            )
    assert found[0] != found[1]


def test_something_must_be_left_to_train() -> None:
    with pytest.raises(
        ValidationError, match=r"validation \(0\.5\) and test \(0\.5\) leave nothing to train on"
    ):
        RandomParams(validation=0.5, test=0.5)
