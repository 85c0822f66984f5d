"""Matching old and new shards, and the operators that can continue from their state."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.base import Listing, SourceShard
from engine.plan.increment import _difference, with_columns_of
from engine.plan.shard_matching import match_shards
from operators.registry import operator_class

CANNOT = {"neighbours", "dckm", "decorrelation"}
FILES = st.lists(st.tuples(st.sampled_from("ABC"), st.integers(1, 2), st.integers(1, 3)), max_size=6)


def listing_of(files: list[tuple[str, int, int]]) -> Listing:
    """File number i: (its bytes, rows of a shard, shards)."""
    shards = [
        SourceShard(f"f{i}", s, s + 1, rows, s * rows, 1)
        for i, (_, rows, count) in enumerate(files)
        for s in range(count)
    ]
    identities = {f"f{i}": identity for i, (identity, _, _) in enumerate(files)}
    return Listing(pa.schema([]), tuple(shards), identities)


def keys(listing: Listing) -> list[tuple[str, int, int, int]]:
    return [(listing.identities[s.path], s.start, s.stop, s.n_rows) for s in listing.shards]


def test_columns_stand_in_the_base_s_order_and_new_ones_behind() -> None:
    manifest = {"schema": [{"name": name} for name in ("b", "gone", "a", "weight")]}
    fields = [(name, pa.int64()) for name in ("new", "a", "b", "newer")]
    found = with_columns_of(manifest, Listing(pa.schema(fields), (), {}))
    assert found.schema.names == ["b", "a", "new", "newer"]


@given(FILES, FILES)
def test_old_shards_come_first_in_the_base_s_order(before: list, after: list) -> None:  # type: ignore[type-arg]
    base, listing = listing_of(before), listing_of(after)
    shards = [{"path": s.path, "rows": s.n_rows, "range": [s.start, s.stop]} for s in base.shards]
    found = match_shards(listing, {"source": {"shards": shards, "files": base.identities}})
    assert sorted(found.order) == list(range(len(listing.shards)))
    assert list(found.old) == sorted(set(found.old))
    theirs, mine = keys(base), keys(listing)
    assert [theirs[old] for old in found.old] == [mine[new] for new in found.order[: len(found.old)]]
    assert len(found.old) == (Counter(theirs) & Counter(mine)).total()
    assert found.gone == len(theirs) - len(found.old)
    rest = found.order[len(found.old) :]
    assert list(rest) == sorted(rest)
    changed = [f"f{i}" for i, (a, b) in enumerate(zip(before, after, strict=False)) if a[0] != b[0]]
    assert list(found.changed) == [
        name for name in changed if name in base.identities and any(s.path == name for s in listing.shards)
    ]


@pytest.mark.parametrize(
    "name",
    [
        "ingest",
        "embed",
        "probe",
        "gradients",
        "groups",
        "eos",
        "outliers",
        "weights",
        "split",
        *sorted(CANNOT),
    ],
)
def test_which_operators_can_place_new_rows(name: str) -> None:
    kind = operator_class(name).variant({})
    fields = (
        {"label": "y"} if name == "ingest" else {"model": "minilm", "column": "c"} if name == "embed" else {}
    )
    operator = kind(kind.Params.model_construct(**(kind.Params.model_construct().model_dump() | fields)))
    assert operator.can_predict is (name not in CANNOT)


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        (["a", "b"], ["b", "c"], " (without 'a', with 'c')"),
        (
            list("vwxyzu"),
            [],
            " (without 'v', without 'w', without 'x', without 'y', without 'z' and 1 more)",
        ),
        (["b", "a"], ["a", "b"], " (in another order)"),
        (["a"], ["a"], ""),
        ([1], [2], ""),
        (None, ["a"], ""),
    ],
)
def test_lists_of_columns_that_differ_are_told(then: Any, now: Any, told: str) -> None:
    assert _difference(then, now) == told
