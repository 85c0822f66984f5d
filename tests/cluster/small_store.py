"""DBSCAN in blocks on a Ray of its own whose object store is smaller than the rows; run by a test."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

STORE = 80 * 2**20  # Ray wants 75 MiB at least
N, P = 5_250, 4096


class Filed:
    """Rows of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, start: int, stop: int) -> Any:
        return np.array(np.load(self.path, mmap_mode="r")[start:stop])


def main(folder: Path) -> None:
    """Compare labels in blocks with the kernel's; print the bytes of both kinds."""
    import ray

    from engine.execution.ray_executor import RayExecutor
    from operators.dbscan.kernel import cluster
    from operators.dbscan.sharded import BlockLabels, lay_out, solve
    from operators.points import Points

    random = np.random.default_rng(0)
    centres = random.normal(size=(4, P)).astype(np.float32)
    X = centres[random.choice(4, N, p=[0.8, 0.1, 0.06, 0.04])] + 0.5 * random.normal(size=(N, P))
    X = X.astype(np.float32)
    np.save(folder / "rows.npy", X)
    ray.init(
        address="local", num_cpus=2, object_store_memory=STORE, include_dashboard=False, log_to_driver=False
    )
    eps, least = [0.19, 0.2, 0.21], [10, 50]
    (folder / "work").mkdir()
    axes: dict[str, Any] = {"metric": "cosine", "eps": eps, "least": least, "block_rows": 1050}
    run = RayExecutor().map
    layout, _ = lay_out(run, Filed(folder / "rows.npy"), folder / "work", shape=X.shape, **axes)
    solved = solve(run, layout)
    ray.shutdown()
    expected = cluster(Points(X, "cosine"), eps, least)[0]
    for block, e, m in np.ndindex(len(layout.blocks), len(eps), len(least)):
        found = BlockLabels(solved, block).of_threshold(m).at(e)[0]
        np.testing.assert_array_equal(found, expected[e, m, layout.rows(block)])
    print(f"bytes {X.nbytes} store {STORE} clusters {int(expected.max()) + 1}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
