"""Reads an ORC file in a process of its own, which a forged file may end and whose memory has a limit.

Arrow's reader trusts the lengths of lists that a file states: one changed byte ends the process. The process
that asked gets one line of JSON: the rows of the file, or why it is refused.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import orc

NUMBER = b"iceberg.id"
"""Key of a column's number in Iceberg."""
ROWS = 64
"""Rows that are expanded at once while they are counted: a text of a megabyte in each takes 64 MB."""
BESIDE = 2 * 2**30
"""Address space beside the rows: libraries and their threads."""


def main() -> None:
    """Answer one request: the path, the limits, and the numbers of the columns; None for all columns."""
    path, max_rows, max_bytes, wanted = json.load(sys.stdin)
    most = allowed(BESIDE + 2 * max_bytes)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        answer = inspected(path, max_rows, max_bytes, wanted)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
    print(json.dumps(answer), flush=True)


def allowed(n_bytes: int) -> int:
    """Return so many bytes of address space, or fewer where a scheduler has set a limit for its jobs."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    return n_bytes if limit == resource.RLIM_INFINITY else min(n_bytes, limit)


def inspected(path: str, max_rows: int, max_bytes: int, wanted: list[str] | None) -> dict[str, Any]:
    """Count the rows and bytes of a file's columns, then read them as the source will."""
    file = orc.ORCFile(path)
    if file.nrows > max_rows:
        return {"rows": file.nrows}
    numbers = {field.name: (field.metadata or {}).get(NUMBER) for field in file.schema}
    columns = [
        name
        for name, number in numbers.items()
        if wanted is None or number is None or number.decode(errors="replace") in wanted
    ]
    held = 0
    for batch in _batches(path, columns, batch_size=ROWS, batch_readahead=0, use_threads=False):
        batch.validate(full=True)
        held += batch.nbytes
        if held > max_bytes:
            return {"rows": file.nrows, "bytes": held}
    for batch in _batches(path, columns):
        batch.validate(full=True)
    return {"rows": file.nrows, "bytes": held}


def _batches(path: str, columns: list[str], **options: Any) -> Any:
    with pa.OSFile(path) as stream:
        fragment = ds.OrcFileFormat().make_fragment(stream)
        yield from ds.Scanner.from_fragment(fragment, columns=columns, **options).to_batches()
