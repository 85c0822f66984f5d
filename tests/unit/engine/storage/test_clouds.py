"""Runs on Azure and on Google's store as on S3, and Google's store as a source.

Azure and the source need emulators, see tests/clouds.py; as an output, Google's store is tests/gcs.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from connectors import open_source
from connectors.sink import parquet_bytes
from connectors.storage import ObjectPath, place_of
from engine.core.errors import LockedError
from engine.core.output_layout import version_folder
from engine.runs.runner import run
from engine.storage.lease import Lease, hold_lease, newest_token
from tests.clouds import ACCOUNT, KEY, azurite, fake_gcs, new_bucket, new_container
from tests.data import spurious_table
from tests.faults.racing import winners
from tests.gcs import gcs_server
from tests.unit.engine.runs.test_increments import add_night
from tests.unit.engine.storage.test_object_output import files_of, recipe_at

_numbers = itertools.count()


@pytest.fixture(params=[pytest.param("azure", marks=pytest.mark.slow), "google"])
def container(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URI of a prefix in a new container."""
    if request.param == "google":
        with gcs_server() as host:
            yield f"gs://anonymous@bucket-{next(_numbers)}/out?endpoint_override={host}&scheme=http"
        return
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    with azurite() as host:
        yield f"az://{new_container(host)}/out?endpoint_override={host}/{ACCOUNT}&scheme=http"


@pytest.mark.slow
def test_a_cloud_gets_what_a_disk_gets(
    container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.runs.plugins.report.write_report", lambda *_: None)
    outs = [container, str(tmp_path / "disk")]
    (first, on_disk) = (run(recipe_at(tmp_path, out)) for out in outs)
    assert files_of(first.path) == files_of(on_disk.path)
    assert run(recipe_at(tmp_path, container)).reused
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    nights = []
    for out in outs:
        value = recipe_at(tmp_path, out).model_dump(mode="json", exclude_defaults=True)
        value["incremental"] = {"base": "current", "mode": "predict"}
        nights.append(run(type(recipe_at(tmp_path, out)).parse(value)))
    assert files_of(nights[0].path) == files_of(nights[1].path)
    assert nights[0].parts_taken_over == nights[1].parts_taken_over > 0


def test_a_cloud_has_one_writer(container: str) -> None:
    output = cast(ObjectPath, place_of(container))
    assert winners(output, 4) == 1
    with ExitStack() as stack:
        old = stack.enter_context(hold_lease(output, "old"))
        file = Lease(output, newest_token(output)).file
        file.write_bytes(file.read_bytes().replace(b'"released": false', b'"released": true'))
        new = stack.enter_context(hold_lease(output, "new"))
        new.publish(version_folder(output, "vnew"), "{}")
        new.point(output / "CURRENT", "vnew")
        with pytest.raises(LockedError, match="taken over by new"):
            old.point(output / "CURRENT", "vold")
        assert (output / "CURRENT").read_text().startswith("vnew\n")


@pytest.mark.slow
def test_a_source_on_google_s_store() -> None:
    table = spurious_table(50)
    with fake_gcs() as host:
        bucket = new_bucket(host, {f"rows/{n}.parquet": parquet_bytes(table) for n in range(2)})
        source = open_source(f"gs://anonymous@{bucket}/rows?scheme=http&endpoint_override={host}")
        listing = source.list()
        names = listing.schema.names
        found = [source.read(shard, names, listing.schema) for shard in listing.shards]
    assert [one.num_rows for one in found] == [50, 50]
    assert all(one.column("a").equals(table.column("a")) for one in found)
    assert all(",etag:" in identity for identity in listing.identities.values())
