"""The check of OpenLineage's events against JSON schemas finds faults in events and in facets.

The endpoint of `test_openlineage.py` applies it to every event that it has received.
"""

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.publish.lineage_facets import PRODUCER
from tests.unit.engine.publish.published_schemas import VARIABLE, PublishedSchemas, check_received

SITE = "https://openlineage.io/spec"
RUN_ID = "01890a5d-ac96-774b-bcce-b302099a8057"


def _facet(name: str, version: str, **fields: Any) -> dict[str, Any]:
    url = f"{SITE}/facets/{version}/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": url, **fields}


def _event() -> dict[str, Any]:
    parent = {"run": {"runId": RUN_ID}, "job": {"namespace": "airflow", "name": "nightly"}}
    version = _facet("DatasetVersionDatasetFacet", "1-0-1", datasetVersion="v1")
    return {
        "eventType": "COMPLETE",
        "eventTime": "2026-11-23T00:00:00.5+00:00",
        "producer": PRODUCER,
        "schemaURL": f"{SITE}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": RUN_ID, "facets": {"parent": _facet("ParentRunFacet", "1-2-0", **parent)}},
        "job": {"namespace": "n", "name": "x"},
        "inputs": [],
        "outputs": [{"namespace": "file", "name": "/out", "facets": {"version": version}}],
    }


def _own_schemas(folder: Path) -> Path:
    """Write schemas of our own, in the form and with the references of the published ones."""
    text: dict[str, Any] = {"type": "string"}
    uri, run_id = {**text, "format": "uri"}, {**text, "format": "uuid"}
    base = {"required": ["_producer", "_schemaURL"], "properties": {"_producer": uri, "_schemaURL": uri}}
    holder = {"facets": {"additionalProperties": {"$ref": "#/$defs/Facet"}}}
    run = {"properties": {"runId": run_id, **holder}, "required": ["runId"]}
    named = {"properties": {"name": text, **holder}, "required": ["name"]}
    event = {
        "properties": {
            "eventType": {"enum": ["START", "COMPLETE"]},
            "eventTime": {**text, "format": "date-time"},
            "producer": uri,
            "run": {"$ref": "#/$defs/Run"},
            "job": {"$ref": "#/$defs/Named"},
            "outputs": {"type": "array", "items": {"$ref": "#/$defs/Named"}},
        },
        "required": ["eventTime", "run", "job", "schemaURL"],
    }
    parts = {"RunEvent": event, "Run": run, "Named": named, "Facet": base}
    core = {"$id": f"{SITE}/2-0-2/OpenLineage.json", "$defs": parts, "oneOf": [{"$ref": "#/$defs/RunEvent"}]}
    fields = {"properties": {"run": run, "datasetVersion": text}}
    (folder / "facets").mkdir(parents=True)
    (folder / "OpenLineage.json").write_text(json.dumps(core))
    for key, name, required in (
        ("parent", "ParentRunFacet", "run"),
        ("version", "DatasetVersionDatasetFacet", "datasetVersion"),
    ):
        inherited = {"$ref": f"{SITE}/1-0-2/OpenLineage.json#/$defs/Facet"}
        facet = {
            "$id": f"{SITE}/facets/1-0-1/{name}.json",
            "$defs": {name: {"allOf": [inherited, {**fields, "required": [required]}]}},
            "properties": {key: {"$ref": f"#/$defs/{name}"}},
        }
        (folder / "facets" / f"{name}.json").write_text(json.dumps(facet))
    return folder


@pytest.fixture(params=["own", "published"])
def schemas(request: pytest.FixtureRequest, tmp_path: Path) -> PublishedSchemas:
    if request.param == "own":
        return PublishedSchemas(_own_schemas(tmp_path / "spec"))
    if not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} names no folder `spec` of a checkout of OpenLineage: no published schemas")
    return PublishedSchemas(Path(os.environ[VARIABLE]))


DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "type of event": (lambda event: event.update(eventType="DONE"), "$.eventType: "),
    "time": (lambda event: event.update(eventTime="2026-11-23 00:00"), "$.eventTime: "),
    "day": (lambda event: event.update(eventTime="2026-02-30T00:00:00Z"), "$.eventTime: "),
    "producer": (lambda event: event.update(producer="row sieve"), "$.producer: "),
    "run id": (lambda event: event["run"].update(runId="7"), "$.run.runId: "),
    "no job": (lambda event: event.pop("job"), "$: 'job' is a required"),
    "no schema": (lambda event: event.pop("schemaURL"), "$: 'schemaURL' is a required"),
    "name of a dataset": (lambda event: event["outputs"][0].update(name=7), "$.outputs[0].name: "),
    "facet": (lambda event: _version(event).pop("_producer"), "$.outputs[0].facets.version: '_producer'"),
    "field of a facet": (
        lambda event: _version(event).update(datasetVersion=7),
        "$.outputs[0].facets.version.datasetVersion: ",
    ),
    "format in a facet": (
        lambda event: event["run"]["facets"]["parent"]["run"].update(runId="7"),
        "$.run.facets.parent.run.runId: ",
    ),
    "facet of another place": (
        lambda event: event["run"]["facets"].update(other=_version(event)),
        "$.run.facets.other: ",
    ),
    "definition of a facet": (
        lambda event: _version(event).update(
            _schemaURL=f"{SITE}/facets/1-0-1/DatasetVersionDatasetFacet.json#/$defs/Other"
        ),
        "$.outputs[0].facets.version: ",
    ),
}


def _version(event: dict[str, Any]) -> Any:
    return event["outputs"][0]["facets"]["version"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_event_is_refused(damage: str, schemas: PublishedSchemas) -> None:
    event = _event()
    assert schemas.faults(copy.deepcopy(event)) == []
    change, place = DAMAGES[damage]
    change(event)
    (fault, *_) = schemas.faults(event)
    assert fault.startswith(place)


def test_what_the_folder_lacks_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = _own_schemas(tmp_path / "spec")
    (folder / "facets" / "DatasetVersionDatasetFacet.json").unlink()
    monkeypatch.setenv(VARIABLE, str(folder))
    with pytest.warns(UserWarning, match=" has ") as noted:
        check_received([_event()])
    assert [str(one.message).removeprefix(f"{folder} has ") for one in noted] == [
        f"{SITE}/facets/1-0-1/ParentRunFacet.json for {SITE}/facets/1-2-0/ParentRunFacet.json",
        "no schema DatasetVersionDatasetFacet.json of version",
    ]
    with pytest.raises(AssertionError, match=r"\$\.run\.runId"):
        check_received([_event() | {"run": {"runId": "7"}}])
