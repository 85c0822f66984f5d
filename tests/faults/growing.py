"""Memory of the driver while rows grow. A test starts this module in a process of its own for each size."""

import json
import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FEATURES = 256


def write(folder: Path, rows: int, shard_rows: int) -> None:
    """Shards of a fixed length: more rows are more shards."""
    folder.mkdir()
    for index in range(rows // shard_rows):
        rng = np.random.default_rng(index)
        values = pa.array(rng.normal(size=shard_rows * FEATURES).astype(np.float32))
        vectors = pa.FixedSizeListArray.from_arrays(values, FEATURES)
        labels = pa.array(rng.integers(0, 2, shard_rows))
        pq.write_table(pa.table({"v": vectors, "label": labels}), folder / f"s{index:04d}.parquet")


def main(folder: Path, rows: int, shard_rows: int) -> None:
    """Publish them with the operators that stream; print the most memory this process had, in MiB."""
    from engine.recipe.recipe import Recipe
    from engine.runs.runner import run
    from tests.data import recipe_for

    write(folder / "data", rows, shard_rows)
    operators = {
        "probe": {"trainer": "in_process", "small_rows": 1, "epochs": 1, "batch_size": 1024},
        "gradients": {},
        "groups": {"method": "kmeans", "k": [2], "n_init": 1, "silhouette_rows": 500, "min_rows": 0},
        "weights": {"method": "uniform"},
        "split": {},
    }
    truth = {"group": None}
    where = {"executor": "ray", "cpus": 4}
    recipe = recipe_for(folder / "data", folder / "out", operators=operators, truth=truth, run=where)
    run(Recipe.parse(recipe))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rows": rows, "peak_mib": peak}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
