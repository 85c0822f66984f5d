"""A dataset that grows night by night, and drifts: the demo's digits in three portions.

Night 1 brings 1,000 digits, night 2 another 400 of the same kind. On night 3 the light has changed: the
background of 397 digits says nothing about the label, so that what was a rare group is as common as others.
The features alone look as before, since as many backgrounds are bright; gradients and groups do not.

    python -m connectors.drifting_digits demo/drift 1
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa

from connectors.base import ConnectorError
from connectors.digits import LOOP_DARK, NO_LOOP_BRIGHT, make_digits
from connectors.sink import write_shards

ENDS = (0, 1000, 1400, 1797)
CALM = (LOOP_DARK, NO_LOOP_BRIGHT)
"""Shares of digits whose background is that of the other class, on nights 1 and 2."""
CHANGED = (0.5, 0.5)
"""These shares on night 3: the background says nothing about the label."""


def make_night(night: int, *, seed: int = 0) -> pa.Table:
    """Return the rows that come in night 1, 2 or 3. Raises ValueError for another one."""
    if not 1 <= night < len(ENDS):
        raise ValueError(f"night is {night}: there are 1, 2 and 3")
    table = make_digits(seed=seed, shares=CHANGED if night == 3 else CALM)
    order = np.random.default_rng(seed).permutation(table.num_rows)
    return table.take(pa.array(np.sort(order[ENDS[night - 1] : ENDS[night]])))


def write_night(out: Path, night: int, *, seed: int = 0) -> list[Path]:
    """Write the files of one night, two for each 500 rows; those of other nights stay."""
    table = make_night(night, seed=seed)
    return write_shards(table, out, f"night-{night}", max(1, table.num_rows // 250))


def main() -> None:
    """Run the command line of this module."""
    parser = argparse.ArgumentParser(
        prog="python -m connectors.drifting_digits", description="Write a night's digits."
    )
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("night", type=int, help="1, 2 or 3")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    try:
        paths = write_night(given.out, given.night, seed=given.seed)
    except (ConnectorError, ValueError, OSError) as error:
        parser.error(str(error))
    print(f"night {given.night}: {len(paths)} files in {given.out}")


if __name__ == "__main__":
    main()
