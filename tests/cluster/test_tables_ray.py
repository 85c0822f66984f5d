"""Tables on Ray: workers read their own shards of one version, and write what one commit makes visible."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from connectors import Source, SourceShard, open_source
from engine.execution.ray_executor import RayExecutor
from tests import tables
from tests.unit.connectors.tables.test_tables_sources import rows
from tests.unit.engine.publish.test_export import Target, Version

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("iceberg", "lance")]


def read(job: tuple[Source, SourceShard, pa.Schema]) -> list[int]:
    source, shard, schema = job
    found: list[int] = source.read(shard, ["a"], schema)["a"].to_pylist()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["delta", "sqlite", "iceberg", "lance"])
def test_workers_read_the_version_that_was_planned(name: str, tmp_path: Path) -> None:
    made = tables.new(name, tmp_path)
    for start in (0, 50):
        tables.append(made, rows(start, start + 50))
    source = open_source(made.path, made.format, options=made.options)
    listing = source.list()
    tables.append(made, rows(100, 150))
    jobs = [(source, shard, listing.schema) for shard in listing.shards]
    found = [value for part in RayExecutor(2).map(read, jobs) for value in part]
    assert sorted(found) == [*range(100)]


@pytest.mark.parametrize("name", ["delta", *SLOW])
def test_workers_write_and_the_driver_commits(name: str, tmp_path: Path) -> None:
    target, version = Target(name, tmp_path), Version(tmp_path, "v1", 8)
    assert target.export(version, "create", RayExecutor(2)).written
    assert target.ids() == [*range(8)]
