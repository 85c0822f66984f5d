"""Files of every binary format with bytes changed, cut out or put in: read, or refused; nothing else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors import open_source
from tests.faults.fuzzing import HOW_MANY, judged, often
from tests.unit import formats

SLOW = ("ipc_file", "feather", "huggingface", "jsonl_gz")


@pytest.mark.parametrize(
    "kind", ["ipc_stream", "webdataset", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]
)
@HOW_MANY
def test_changed_files(kind: str, examples: int, tmp_path: Path) -> None:
    path = formats.WRITERS[kind](tmp_path, "data", formats.rows())
    good = path.read_bytes()

    def read() -> None:
        source = open_source(str(tmp_path), shard_bytes=1000, max_bytes=2**26)
        listing = source.list()
        for shard in listing.shards:
            source.read(shard, listing.schema.names, listing.schema).to_pylist()

    @often(examples // 3)
    @given(st.integers(0, len(good)), st.integers(0, 40), st.binary(max_size=40))
    def check(start: int, cut: int, put: bytes) -> None:
        path.write_bytes(good[:start] + put + good[start + cut :])
        judged(read, str(tmp_path))

    check()
