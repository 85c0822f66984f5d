"""A small text dataset with a spurious cue, drawn from Conversation AI's "Bias Madlibs".

The original (Dixon et al. 2018, "Measuring and mitigating unintended bias in text classification",
Apache-2.0) is a CSV of 76,564 short sentences with the columns Text, Label (BAD, NOT_BAD) and Template. It is
not part of Rowsieve; you need your own copy. In the original every template has as many bad sentences as good
ones. Here the template predicts the label of most rows: of 840 bad sentences 760 say "Being <identity> is
<adjective>." and 80 "<name> is a <adjective> <identity>"; of 792 good ones 32 and 760. Group inference should
find the two small groups, which ``true_group`` names, for scoring only.

    python -m connectors.madlibs bias_madlibs_77k.csv OUT --seed 0 --shards 6
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from connectors.base import ConnectorError
from connectors.sink import write_shards

ROWS = {
    ("BAD", "being_adj"): 760,
    ("BAD", "name_adj"): 80,
    ("NOT_BAD", "name_adj"): 760,
    ("NOT_BAD", "being_adj"): 32,
}
"""(Label, Template) -> how many rows are drawn."""


def make_madlibs(path: Path, *, seed: int = 0) -> pa.Table:
    """Draw the rows: text, label, line (of the CSV, 1-based), true_group; in random order.

    Raises
    ------
    ConnectorError
        The file is no such CSV, or has too few rows of a kind.
    """
    try:
        source = pv.read_csv(path)
        label, template, text = (source[name] for name in ("Label", "Template", "Text"))
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        raise ConnectorError(
            f"{path} is not a CSV with the columns Text, Label and Template: {error}"
        ) from None
    rng = np.random.default_rng(seed)
    drawn = []
    for (wanted_label, wanted_template), n in ROWS.items():
        kind = pc.and_(pc.equal(label, wanted_label), pc.equal(template, wanted_template))
        rows = np.flatnonzero(kind.to_numpy())
        if len(rows) < n:
            raise ConnectorError(
                f"{path} has {len(rows)} rows of {wanted_label}/{wanted_template}, and {n} are needed."
            )
        drawn.append(rng.choice(rows, n, replace=False))
    rows = rng.permutation(np.concatenate(drawn))
    picked = pa.array(rows)
    group = pc.binary_join_element_wise(label.take(picked), template.take(picked), "/")
    columns = {"text": text.take(picked), "label": label.take(picked), "line": rows + 2, "true_group": group}
    return pa.table(columns)


def write_madlibs(path: Path, out: Path, *, seed: int = 0, shards: int = 6) -> list[Path]:
    """Write :func:`make_madlibs` to ``out`` as ``shards`` Parquet files of nearly equal length."""
    return write_shards(make_madlibs(path, seed=seed), out, "madlibs", shards)


def main() -> None:
    """Run the command line of this module."""
    parser = argparse.ArgumentParser(
        prog="python -m connectors.madlibs", description="Cut a text dataset with a spurious cue."
    )
    parser.add_argument("csv", type=Path, help="your copy of bias_madlibs_77k.csv")
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", type=int, default=6, help="number of Parquet files")
    given = parser.parse_args()
    try:
        paths = write_madlibs(given.csv, given.out, seed=given.seed, shards=given.shards)
    except (ConnectorError, ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{len(paths)} files in {given.out}")


if __name__ == "__main__":
    main()
