"""Encoding an ordinary table: CPU seconds and peak memory, beside scikit-learn and skrub in memory.

python -m tests.benchmarks.encode [--rows N] [--write-readme]

The table has 30 numeric columns, 10 of them with gaps and 5 with heavy tails, and 20 categorical ones, one of
10^5 values, which get class shares out of fold. Ours reads 8 shards of a Parquet file, fits, encodes shard by
shard and writes the features; the others get the whole table as a pandas DataFrame, whose reading is not
counted, and return the features in memory. Each runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.harness import Row, bar, figure, machine, ratio, table, write_section

README = Path(__file__).with_name("README.md")
N_SHARDS = 8
NUMBERS, GAPS, HEAVY = 30, 10, 5
CATEGORIES = 20
MAX_VALUES = 100_000
OURS, SKLEARN, SKRUB = "encode", "ColumnTransformer", "TableVectorizer"
MAX_SECONDS, MAX_MIB = 25.0, 600.0


def make_table(path: Path, n_rows: int) -> None:
    """Write the table as Parquet, one row group for each shard."""
    rng = np.random.default_rng(0)
    columns: dict[str, pa.Array] = {"label": pa.array(np.where(rng.random(n_rows) < 0.3, "yes", "no"))}
    for k in range(NUMBERS):
        values = rng.lognormal(3, 2, n_rows) if k >= NUMBERS - HEAVY else rng.normal(k, 1 + k, n_rows)
        columns[f"number_{k}"] = pa.array(values, mask=rng.random(n_rows) < 0.05 if k < GAPS else None)
    for k in range(CATEGORIES):
        size = MAX_VALUES if k == 0 else 500 if k == 1 else 2 + k
        drawn = rng.integers(0, size, n_rows) if k == 0 else (rng.zipf(1.5, n_rows) - 1) % size
        names = pa.array([f"value {i}" for i in range(size)])
        columns[f"category_{k}"] = names.take(pa.array(drawn))
    pq.write_table(pa.table(columns), path, row_group_size=-(-n_rows // N_SHARDS))


class GroupReader:
    """The row groups of a Parquet file as shards."""

    def __init__(self, path: Path) -> None:
        from operators.base import ShardInfo

        self.path, first = path, 0
        self.shards: list[ShardInfo] = []
        for index in range(pq.ParquetFile(path).num_row_groups):
            n_rows = pq.ParquetFile(path).metadata.row_group(index).num_rows
            self.shards.append(ShardInfo(index, str(path), first, n_rows, first))
            first += n_rows

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return columns of a row group, and ``row_id``."""
        from operators.base import ROW_ID

        info = self.shards[shard]
        wanted = [name for name in columns if name != ROW_ID]
        found = pq.ParquetFile(self.path).read_row_group(shard, columns=wanted, use_threads=False)
        ids = np.arange(info.first_row, info.first_row + info.n_rows)
        return found.append_column(ROW_ID, pa.array(ids))

    read = read_source


def encode(path: Path, folder: Path) -> int:
    """Fit over shards, encode them and write the features. Returns the number of features."""
    from engine.execution.local_executor import LocalExecutor
    from operators.base import Context
    from operators.encode.adaptor import Encode
    from operators.encode.params import EncodeParams

    names = [name for name in pq.read_schema(path).names if name != "label"]
    operator = Encode(EncodeParams(features=tuple(names), label="label"))
    context = Context(GroupReader(path), folder)
    metrics = operator.fit(context, LocalExecutor())
    apply = operator.open(context)
    for info in context.shards.shards:
        encode_shard(apply, context.shards, info.index, names, folder)
    return int(metrics["features"])


def encode_shard(apply: Any, reader: GroupReader, shard: int, names: list[str], folder: Path) -> None:
    """Encode and write a shard, with the steps of the engine's worker."""
    from connectors.sink import write_parquet
    from operators.memory import release_memory

    table = reader.read_source(shard, ["row_id", *names])
    release_memory()
    made = apply(table)
    del table
    write_parquet(made, folder / f"part-{shard}.parquet")
    del made
    release_memory()


def column_transformer(frame: Any, y: Any) -> int:
    """Encode a DataFrame as scikit-learn's users do. Returns the number of features."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, RobustScaler, TargetEncoder

    numbers = [name for name in frame if name.startswith("number")]
    categories = [name for name in frame if name.startswith("category")]
    one_hot = OneHotEncoder(
        min_frequency=0.005, handle_unknown="infrequent_if_exist", sparse_output=False, dtype=np.float32
    )
    filled = make_pipeline(RobustScaler(), SimpleImputer(strategy="median", add_indicator=True))
    transformer = make_column_transformer(
        (filled, numbers), (TargetEncoder(), categories[:1]), (one_hot, categories[1:])
    )
    return int(transformer.fit_transform(frame, y).shape[1])


def table_vectorizer(frame: Any, y: Any) -> int:
    """Encode a DataFrame by skrub, with its own defaults. Returns the number of features."""
    from skrub import TableVectorizer

    return int(TableVectorizer().fit_transform(frame, y).shape[1])


def alone(name: str, path: Path) -> None:
    """Run one encoder in this process, and print its CPU seconds and peak memory as JSON."""
    run: Callable[[], int]
    before = 0.0
    if name == OURS:
        import connectors.sink  # noqa: F401
        import engine.execution.local_executor  # noqa: F401
        import operators.encode.fitting  # noqa: F401 -- imports are no part of the work

        folder = Path(tempfile.mkdtemp(dir=path.parent))
        run = lambda: encode(path, folder)  # noqa: E731
        before = _peak()
    else:
        import sklearn.preprocessing  # noqa: F401

        before = _peak()
        frame = pq.read_table(path).to_pandas()
        y = frame.pop("label") == "yes"
        function = column_transformer if name == SKLEARN else table_vectorizer
        run = lambda: function(frame, y)  # noqa: E731
    started = time.process_time()
    features = run()
    seconds = time.process_time() - started
    print(json.dumps({"seconds": seconds, "before": before, "peak": _peak(), "features": features}))


def _peak() -> float:
    """Return the peak memory of this process in MiB. ``ru_maxrss`` would be inherited from the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def compare(n_rows: int) -> tuple[list[Row], list[Row]]:
    """Run every encoder that is installed; rows of the table, and the bars."""
    names = [OURS, SKLEARN] + ([SKRUB] if find_spec("skrub") else [])
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        make_table(path, n_rows)
        for name in names:
            command = [sys.executable, "-m", "tests.benchmarks.encode", "--alone", name, "--path", str(path)]
            printed = subprocess.run(command, capture_output=True, text=True)
            if printed.returncode:
                print(f"{name}: {printed.stderr.strip()[-300:]}", file=sys.stderr)
                continue
            found[name] = json.loads(printed.stdout.splitlines()[-1])
    ours = found[OURS]
    rows: list[Row] = [
        {
            "encoder": name,
            "CPU s": figure(cells["seconds"]),
            "beside ours": ratio(cells["seconds"] / ours["seconds"]),
            "peak of the process, MiB": f"{cells['peak']:,.0f}",
            "of that before the table was read": f"{cells['before']:,.0f}",
            "features": int(cells["features"]),
        }
        for name, cells in found.items()
    ]
    size = f"{n_rows:,} x {NUMBERS + CATEGORIES}"
    bars = [
        bar(
            f"{size}, CPU seconds",
            f"<= {MAX_SECONDS:g}",
            figure(ours["seconds"]),
            ours["seconds"] <= MAX_SECONDS,
        ),
        bar(
            f"{size}, peak of a worker, MiB",
            f"<= {MAX_MIB:g}",
            f"{ours['peak']:,.0f}",
            ours["peak"] <= MAX_MIB,
        ),
    ]
    return rows, bars


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of this module."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.encode", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--alone", choices=(OURS, SKLEARN, SKRUB), help="one encoder in this process")
    parser.add_argument("--path", type=Path, help="the table for --alone")
    parser.add_argument("--write-readme", action="store_true")
    options = parser.parse_args(arguments)
    if options.alone:
        alone(options.alone, options.path)
        return 0
    rows, bars = compare(options.rows)
    packages = ("numpy", "pyarrow", "pandas", "scikit-learn", "skrub")
    text = "\n\n".join([machine(packages), table(bars), table(rows)])
    print(text)
    if options.write_readme:
        write_section(README, "encode", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
