"""Runs with ever more shards in flight and probe workers, on a Ray told of 16 CPUs; started by a test."""

import json
import sys
from pathlib import Path

SETTINGS = ((1, 1), (3, 2), (16, 1))
"""Shards in flight, workers of the probe."""


def main(folder: Path) -> None:
    """Print where each run has published."""
    import ray

    from engine.recipe.recipe import Recipe
    from engine.runs.runner import run
    from tests.cluster.test_faults_ray import many_shards

    ray.init(
        address="local", num_cpus=16, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    found = {}
    for in_flight, workers in SETTINGS:
        settings = {"executor": "ray", "shards_in_flight": in_flight}
        probe = {"l2": 0.05, "trainer": "ray", "workers": workers}
        recipe = many_shards(folder, f"{in_flight}-{workers}", run=settings, operators={"probe": probe})
        found[f"{in_flight}-{workers}"] = str(run(Recipe.parse(recipe)).path)
    print(json.dumps({"versions": found}))
    sys.stdout.flush()
    ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
