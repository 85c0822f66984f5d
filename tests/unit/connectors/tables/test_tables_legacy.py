"""Exports that were written under the product's former name are recognised, so that no rows come twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.tables.export import Export, VersionTag, open_export
from tests import tables

for package in ("lance", "deltalake", "pyiceberg"):
    pytest.importorskip(package)

ROWS = pa.table({"row_id": pa.array([0, 1, 2], pa.int64())})
FORMER = {"winnow.version": "v1", "winnow.content": "c0ffee"}


def former_parquet(folder: Path) -> Export:
    version = folder / "table" / "v1"
    version.mkdir(parents=True)
    pq.write_table(ROWS, version / "winnow-c0ffee-00000.parquet")
    (version / "_winnow.json").write_text(json.dumps(FORMER))
    return open_export("parquet", str(folder / "table"), "append")


def former_delta(folder: Path) -> Export:
    import deltalake

    deltalake.write_deltalake(
        str(folder / "table"), ROWS, commit_properties=deltalake.CommitProperties(custom_metadata=FORMER)
    )
    return open_export("delta", str(folder / "table"), "append")


def former_delta_transaction(folder: Path) -> Export:
    """Write what is left where Delta has cleaned the log."""
    import deltalake

    transactions = [deltalake.Transaction("winnow-c0ffee", 1)]
    properties = deltalake.CommitProperties(app_transactions=transactions)
    deltalake.write_deltalake(str(folder / "table"), ROWS, commit_properties=properties)
    return open_export("delta", str(folder / "table"), "append")


def former_lance(folder: Path) -> Export:
    import lance
    from lance.fragment import write_fragments

    path = str(folder / "table")
    fragments = write_fragments(ROWS, path, schema=ROWS.schema)
    work = lance.LanceOperation.Overwrite(ROWS.schema, fragments)
    transaction = lance.Transaction(0, work, transaction_properties=FORMER)
    lance.LanceDataset.commit(path, transaction)
    return open_export("lance", path, "append")


def former_iceberg(folder: Path) -> Export:
    made = tables.new("iceberg", folder)
    catalog = tables.catalog_of(made)
    catalog.create_namespace_if_not_exists(made.path.rpartition(".")[0])
    catalog.create_table(made.path, ROWS.schema).append(ROWS, snapshot_properties=FORMER)
    return open_export("iceberg", made.path, "append", made.options["catalog"])


@pytest.mark.parametrize(
    "former", [former_parquet, former_delta, former_delta_transaction, former_lance, former_iceberg]
)
def test_a_former_export_is_found(former: Callable[[Path], Export], tmp_path: Path) -> None:
    table = former(tmp_path)
    assert table.committed_state(VersionTag("v1", "c0ffee"))
    assert not table.committed_state(VersionTag("v1", "deadbeef"))


@pytest.mark.parametrize("former", [former_parquet, former_delta, former_lance, former_iceberg])
def test_a_former_export_is_not_written_again(former: Callable[[Path], Export], tmp_path: Path) -> None:
    edition = VersionTag("v1", "c0ffee")
    pending = former(tmp_path).start_export(ROWS.schema, edition)
    assert not pending.commit([pending.write(ROWS, 0)]).written
