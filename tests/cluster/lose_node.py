"""A run on a cluster of three nodes, one of which is lost in the middle; started by a test in a process."""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

FAST_DETECTION = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
    "health_check_timeout_ms": 1000,
}


def main(folder: Path) -> None:
    """Run the recipe; take a node away once the gradients of two shards are there."""
    import ray
    from ray.cluster_utils import Cluster

    from engine.plan.planner import make_plan
    from engine.recipe.recipe import Recipe
    from engine.runs.runner import run
    from tests.cluster.test_faults_ray import many_shards

    # The head has the driver; work that may be lost goes to the others.
    head: dict[str, Any] = {"num_cpus": 1, "include_dashboard": False, "_system_config": FAST_DETECTION}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    recipe = Recipe.parse(many_shards(folder, "lost", run={"executor": "ray"}))
    store = make_plan(recipe).store.folder(make_plan(recipe).fingerprint_of("gradients"))
    lost = threading.Event()

    def lose() -> None:
        while len(list(store.glob("part-*.json"))) < 2:
            time.sleep(0.01)
        cluster.remove_node(nodes[0], allow_graceful=False)
        lost.set()

    threading.Thread(target=lose, daemon=True).start()
    result = run(recipe)
    alive = sum(node["Alive"] for node in ray.nodes())
    print(json.dumps({"lost": lost.is_set(), "alive": alive, "version": str(result.path)}))
    sys.stdout.flush()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
