"""Datasets and facets of OpenLineage 2-0-2, built with the classes of the package `openlineage-python`.

Used by :mod:`engine.publish.lineage_events`, which says when events are sent. Names of datasets follow
OpenLineage's naming convention (https://openlineage.io/docs/spec/naming): a namespace for the storage and a
name in it. The package is imported within the functions, since most runs send no events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from connectors.storage import Place
from engine.plan.chain import CONTRACT, contract_columns
from operators.base import GROUP, IS_OUTLIER, SPLIT

PRODUCER = "https://pypi.org/project/rowsieve"
"""URI in every event that says which software made it."""
DATABASE_PORTS = {"postgres": 5432, "postgresql": 5432}
BUCKETS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}
CONTAINERS = ("abfs", "abfss", "az", "azure")
TEXT_LIMIT = 4000
"""Maximum number of characters of an error's message in an event."""


def dataset_name(path: str | Place, table: str = "") -> tuple[str, str]:
    """Return (namespace, name) of a dataset in OpenLineage's naming convention.

    Parameters
    ----------
    path
        A local path, or a URI of an object store, of a database or of a hub. User, password and query
        are left out.
    table
        The table or query of a database, such as ``public.orders``.

    Examples
    --------
    >>> dataset_name("s3://bucket/curated/people")
    ('s3://bucket', 'curated/people')
    >>> dataset_name("postgresql://reader:secret@db.internal/shop", "public.orders")
    ('postgres://db.internal:5432', 'shop.public.orders')
    >>> dataset_name("/data/people")
    ('file', '/data/people')

    """
    text = str(path)
    scheme, mark, rest = text.partition("://")
    if not mark or scheme == "file":
        return "file", str(Path(rest if mark else text).absolute())
    url, scheme = urlsplit(text), scheme.lower()
    host, inner = url.hostname or "", unquote(url.path).strip("/")
    if scheme in BUCKETS:
        return f"{BUCKETS[scheme]}://{host}", inner or "/"
    if scheme in CONTAINERS:
        # abfss://container@account.dfs.core.windows.net/path; az://container/path has no account.
        container = f"{url.username}@{host}" if url.username else host
        return f"{'abfss' if url.username else 'az'}://{container}", inner or "/"
    if scheme in DATABASE_PORTS:
        place = f"postgres://{host}:{url.port or DATABASE_PORTS[scheme]}"
        return place, ".".join(part for part in (inner, table) if part) or "/"
    if scheme in ("sqlite", "duckdb"):
        return "file", ".".join(part for part in (str(Path(url.path).absolute()), table) if part)
    return f"{scheme}://{host}", ".".join(part for part in (inner, table) if part) or "/"


def source_name(path: str, options: Mapping[str, Any]) -> tuple[str, str]:
    """Return (namespace, name) of a recipe's source; the table of a catalog has the catalog's namespace."""
    catalog = options.get("catalog")
    if catalog:
        return catalog_name(path, catalog)
    return dataset_name(path, str(options.get("table") or ""))


def catalog_name(path: str, catalog: str | Mapping[str, Any]) -> tuple[str, str]:
    """Return (namespace, name) of an Iceberg table ``namespace.table`` of a catalog."""
    if isinstance(catalog, str):
        return f"iceberg://{catalog}", path
    uri = urlsplit(str(catalog.get("uri", "")))
    place = f"{uri.hostname}:{uri.port}" if uri.port else uri.hostname or str(catalog.get("name", "catalog"))
    return f"iceberg://{place}", path


def output_name(output: Place) -> tuple[str, str]:
    """Return (namespace, name) of an output. All its versions are states of one dataset."""
    return dataset_name(output)


def model_name(tracking_uri: str, name: str) -> tuple[str, str]:
    """Return (namespace, name) of a registered model: the MLflow server, and ``models/NAME``.

    OpenLineage has no convention for models. The versions of a model are states of one dataset.

    Examples
    --------
    >>> model_name("http://mlflow:5000", "churn")
    ('mlflow://mlflow:5000', 'models/churn')
    >>> model_name("sqlite:////data/out/mlflow.db", "churn")
    ('mlflow:///data/out/mlflow.db', 'models/churn')

    """
    url = urlsplit(tracking_uri)
    place = url.netloc.rpartition("@")[2]
    if not place:
        # SQLAlchemy writes an absolute path with a fourth slash.
        path = url.path.removeprefix("/") if url.scheme.startswith("sqlite") else url.path
        place = str(Path(path).absolute()) if "/" in tracking_uri else path
    return f"mlflow://{place}", f"models/{name}"


def manifest_facets(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facets of a published version: its version, schema, storage and quality metrics."""
    from openlineage.client.facet_v2 import storage_dataset

    return {
        "version": dataset_version_of(str(manifest["version"])),
        "schema": schema_facet(manifest["schema"], manifest.get("outputs", ())),
        "storage": storage_dataset.StorageDatasetFacet("rowsieve", "parquet"),
        "dataQualityMetrics": quality_facet(manifest),
    }


def dataset_version_of(name: str) -> Any:
    """Return the facet with the name of a dataset's state."""
    from openlineage.client.facet_v2 import dataset_version_dataset

    return dataset_version_dataset.DatasetVersionDatasetFacet(name)


def schema_facet(columns: Iterable[Mapping[str, str]], described: Iterable[Mapping[str, str]] = ()) -> Any:
    """Return the facet of columns (``name``, ``type``), with the descriptions of those that have one."""
    from openlineage.client.facet_v2 import schema_dataset

    texts = {column["name"]: column.get("description") or None for column in described}
    fields = [
        schema_dataset.SchemaDatasetFacetFields(
            name=column["name"],
            type=column["type"],
            description=texts.get(column["name"]),
            ordinal_position=position,
        )
        for position, column in enumerate(columns, 1)
    ]
    return schema_dataset.SchemaDatasetFacet(fields)


def quality_facet(manifest: Mapping[str, Any], *, as_input: bool = False) -> Any:
    """Return the quality metrics of a version from its manifest: rows, groups, outliers and splits.

    The metrics of a dataset and those of an input are two facets of OpenLineage with the same fields.
    """
    from openlineage.client.facet_v2 import data_quality_metrics_dataset, data_quality_metrics_input_dataset

    module = data_quality_metrics_input_dataset if as_input else data_quality_metrics_dataset
    kind = "Input" if as_input else ""
    metrics, facet = module.ColumnMetrics, getattr(module, f"DataQualityMetrics{kind}DatasetFacet")
    rows, summary = manifest["rows"], manifest["summary"]
    names = {field.name: field.name for field in CONTRACT}
    names |= {name: output["name"] for name, output in contract_columns(manifest).items()}
    return facet(
        columnMetrics={
            names[GROUP]: metrics(nullCount=0, count=float(rows), distinctCount=len(summary["groups"])),
            names[IS_OUTLIER]: metrics(count=float(rows), sum=float(summary["outliers"])),
            names[SPLIT]: metrics(nullCount=0, count=float(rows), distinctCount=len(summary["splits"])),
        },
        rowCount=rows,
        bytes=sum(part["bytes"] for part in manifest["parts"]),
        fileCount=len(manifest["parts"]),
    )


def tag_facet(key: str, value: str) -> Any:
    """Return the facet with one tag of a version: ``rowsieve.withdrawn`` with the reason, or removed."""
    from openlineage.client.facet_v2 import tags_dataset

    tag = tags_dataset.TagsDatasetFacetFields(key, value, source="rowsieve")
    return tags_dataset.TagsDatasetFacet([tag])


def statistics_facet(rows: int, size: int | None = None, files: int | None = None) -> dict[str, Any]:
    """Return the output facets with the number of rows, bytes and files that were written."""
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rows, size, files)
    return {"outputStatistics": facet}


def identity_lineage(source: tuple[str, str], columns: Sequence[str]) -> Any:
    """Return the column lineage of a copy, whose columns are those of its source."""
    return _column_lineage({name: [(source, name, "DIRECT", "IDENTITY")] for name in columns})


def version_lineage(source: tuple[str, str], manifest: Mapping[str, Any], adds: Mapping[str, str]) -> Any:
    """Return the column lineage of a published version.

    A column of the source is taken over. A column of an operator depends on the columns of the source that
    the operator, or one that it builds on, reads.

    Parameters
    ----------
    source
        Namespace and name of the source.
    adds
        The operator that adds a column, by the column's name, published or not.

    """
    ours = {column["name"]: column["operator"] for column in manifest["outputs"]}
    readers = {one["name"]: set(one.get("read_by", ())) for one in manifest["source"].get("columns", ())}
    features_and_label = {*manifest["source"]["features"], manifest["source"]["label"]}
    requires = {one["name"]: one["requires"] for one in manifest["operators"]}
    found: dict[str, list[tuple[tuple[str, str], str, str, str]]] = {}
    for column in manifest["schema"]:
        name = column["name"]
        if name not in ours:
            found[name] = [(source, name, "DIRECT", "IDENTITY")]
            continue
        used = _upstream(ours[name], requires, adds)
        # An operator that requires no column of another reads the features and the label.
        first = any(not requires.get(one) for one in used)
        read = [one for one, by in readers.items() if by & used or (first and one in features_and_label)]
        if read:
            found[name] = [(source, one, "INDIRECT", "TRANSFORMATION") for one in read]
    return _column_lineage(found)


def _upstream(operator: str, requires: Mapping[str, Sequence[str]], adds: Mapping[str, str]) -> set[str]:
    """Return an operator and all operators whose columns it builds on."""
    found: set[str] = set()
    waiting = [operator]
    while waiting:
        one = waiting.pop()
        if one and one not in found:
            found.add(one)
            waiting += [adds[column] for column in requires.get(one, ()) if column in adds]
    return found


def _column_lineage(fields: Mapping[str, Sequence[tuple[tuple[str, str], str, str, str]]]) -> Any:
    from openlineage.client.facet_v2 import column_lineage_dataset as module

    return module.ColumnLineageDatasetFacet(
        fields={
            name: module.Fields(
                inputFields=[
                    module.InputField(*dataset, column, [module.Transformation(kind, subtype)])
                    for dataset, column, kind, subtype in inputs
                ]
            )
            for name, inputs in fields.items()
        }
    )


def engine_facet() -> Any:
    """Return the facet with the name and version of Rowsieve and of the client."""
    from openlineage.client.facet_v2 import processing_engine_run

    return processing_engine_run.ProcessingEngineRunFacet(
        version=_installed("rowsieve"),
        name="rowsieve",
        openlineageAdapterVersion=_installed("openlineage-python"),
    )


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def parent_facet(namespace: str, job: str, run_id: str, root: tuple[str, str, str] | None = None) -> Any:
    """Return the facet that names the run which started this one; ``root`` is the outermost one."""
    from openlineage.client.facet_v2 import parent_run as module

    top = None
    if root is not None:
        top = module.Root(module.RootRun(root[2]), module.RootJob(root[0], root[1]))
    return module.ParentRunFacet(module.Run(run_id), module.Job(namespace, job), top)


def job_type_facet(kind: str) -> Any:
    """Return the facet of a job of Rowsieve: RUN, TRAINING or EXPORT, always a batch."""
    from openlineage.client.facet_v2 import job_type_job

    return job_type_job.JobTypeJobFacet("BATCH", "ROWSIEVE", kind)


def error_facet(text: str) -> Any:
    """Return the facet of the error that ended a run. The message is redacted with the whole event."""
    from openlineage.client.facet_v2 import error_message_run

    return error_message_run.ErrorMessageRunFacet(text[:TEXT_LIMIT], "PYTHON")


def operator_facet(name: str, state: str) -> Any:
    """Return the facet that says at which operator a run is."""
    from openlineage.client.facet_v2 import execution_parameters_run as module

    return module.ExecutionParametersRunFacet(
        [
            module.ExecutionParameter(key="rowsieve.operator", name="operator", value=name),
            module.ExecutionParameter(key="rowsieve.state", name="state of the operator", value=state),
        ]
    )


def drift_tests(manifest: Mapping[str, Any]) -> list[Any]:
    """Return the drift checks of an incremental version: a figure beyond its threshold has failed."""
    from openlineage.client.facet_v2 import test_run

    figures = (manifest.get("incremental") or {}).get("drift", ())
    return [
        test_run.TestExecution(
            name=f"drift.{figure['name']}",
            status="fail" if figure["over"] else "pass",
            severity="warn",
            type="drift",
            expected=_text("excess at most", figure.get("threshold")),
            actual=_text("excess", figure.get("excess")),
        )
        for figure in figures
    ]


def promotion_tests(promoted: Mapping[str, Any] | None, rule: str) -> list[Any]:
    """Return the check of a promotion rule; empty if none was asked for."""
    from openlineage.client.facet_v2 import test_run

    if promoted is None:
        return []
    return [
        test_run.TestExecution(
            name="promotion",
            status="pass" if promoted["promoted"] else "fail",
            severity="warn",
            type="promotion",
            expected=rule,
            actual=str(promoted["reason"])[:TEXT_LIMIT],
        )
    ]


def tests_facet(tests: Sequence[Any]) -> dict[str, Any]:
    """Return the run facet ``test`` with the checks; empty if there are none."""
    from openlineage.client.facet_v2 import test_run

    return {"test": test_run.TestRunFacet(list(tests))} if tests else {}


def _text(what: str, value: float | None) -> str | None:
    return None if value is None else f"{what} {value:.6g}"
