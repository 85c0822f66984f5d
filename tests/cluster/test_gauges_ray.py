"""Ray's own endpoint shows how far a run is."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import pytest

from engine import run
from engine.runs.plugins.prometheus import DESCRIPTIONS
from tests.data import small_recipe

pytest.importorskip("prometheus_client", reason="Ray exports metrics only with its extra `default`")


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.usefixtures("ray_cluster")
def test_the_nodes_endpoint_has_every_metric_of_a_run(tmp_path: Path) -> None:
    import ray

    recipe = small_recipe(tmp_path, shards=4, run={"executor": "ray"})
    result = run(recipe)
    port = ray.nodes()[0]["MetricsExportPort"]
    found: list[str] = []
    deadline = time.monotonic() + 60  # nodes collect what processes set every few seconds
    while time.monotonic() < deadline and len({line.split("{")[0] for line in found}) < len(DESCRIPTIONS):
        time.sleep(1.0)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        found = [line for line in lines if line.startswith("ray_rowsieve_")]
    assert {line.split("{")[0] for line in found} == {f"ray_{name}" for name in DESCRIPTIONS}
    (rows,) = [
        line for line in found if line.startswith("ray_rowsieve_rows{") and 'operator="gradients"' in line
    ]
    assert float(rows.rsplit(" ", 1)[1]) == result.manifest["rows"]
    assert f'version="{result.version}"' in rows
