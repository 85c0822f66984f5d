"""Targets of fuzzing for texts that leave an output, and for lines of a Delta table's log.

Events of OpenLineage are sent to an endpoint; dataset cards and descriptions of groups are shown by pages.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from connectors import open_source
from connectors.errors import ConnectorError
from connectors.tables import delta
from engine.core.errors import RowsieveError
from engine.plan.chain import CONTRACT
from engine.publish.croissant import describe_version
from engine.publish.dataset_card import write_card
from engine.publish.lineage_facets import PRODUCER
from engine.publish.lineage_outbox import abort_killed, deliver, lineage_folder, outbox_of
from engine.report.described_groups import describe_groups
from engine.runs.descriptions import descriptions_file, read_descriptions

RUN = "01890000-0000-7000-8000-000000000000"
VERSION = "v0123456789ab"
MADE_BY_LINKS = re.compile(r"<(a|img|script|iframe|em|strong)\b")


class _Endpoint:
    """Takes an event as the client's transports do, by turning it into JSON."""

    def emit(self, event: Any) -> None:
        from openlineage.client.serde import Serde

        Serde.to_json(event)


def event_of(text: str) -> dict[str, Any]:
    """Return an event of Rowsieve in which ``text`` names everything that may be named."""
    named = {"namespace": text, "name": text, "facets": {}}
    return {
        "producer": PRODUCER,
        "eventType": "START",
        "eventTime": "2026-11-25T00:00:00+00:00",
        "run": {"runId": RUN, "facets": {}},
        "job": named,
        "inputs": [named],
        "outputs": [named],
    }


def events(data: bytes) -> None:
    """Events and notes of OpenLineage: their own text, and an event of ours with forged names or facets."""
    text = data.decode("utf-8", "replace")
    contents = [data, json.dumps(event_of(text)).encode()]
    try:
        facets = json.loads(text)
    except (ValueError, RecursionError):
        facets = text
    contents.append(json.dumps(event_of("n") | {"run": {"runId": RUN, "facets": facets}}).encode())
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch)
        folder = output / "runs" / "lineage"
        folder.mkdir(parents=True)
        for content in contents:
            (folder / f"{RUN}-000001.json").write_bytes(content)
            (folder / f"{RUN}.open.json").write_bytes(content)
            for place in outbox_of(output).waiting():
                deliver(_Endpoint(), output, place)
            abort_killed(output)
        assert {path.parent for path in output.rglob("*.json")} <= {lineage_folder(output)}


def _manifest(text: str) -> dict[str, Any]:
    outputs = [{"operator": "", "name": field.name, "description": text} for field in CONTRACT]
    columns = [{"name": output["name"], "type": "string"} for output in outputs]
    return {
        "version": VERSION,
        "recipe": text,
        "rows": 7,
        "seed": 1,
        "operators": [{"name": "split", "version": "1", "params": {}}],
        "outputs": outputs,
        "schema": [{"name": text, "type": "string"}, {"name": "deep", "type": text}, *columns],
        "parts": [{"path": "data/part-00000.parquet", "bytes": 1, "rows": 7, "sha256": "0" * 64}],
        "source": {"path": text, "label": text, "files": {text: f"sha256:{text}"}, "features": [text]},
        "summary": {
            "groups": {text: 7},
            "splits": {text: 7},
            "outliers": 0,
            "quarantined": 0,
            "effective_sample_size": 7.0,
        },
        "warnings": [text],
    }


def cards(data: bytes) -> None:
    """Dataset card and Croissant of a version whose names are forged: no link, picture or script results."""
    from markdown_it import MarkdownIt

    text = data.decode("utf-8", "replace")
    manifest = _manifest(text)
    json.dumps(describe_version(manifest, withdrawn=text, published="2026-11-25"))
    card = write_card(manifest, withdrawn=text, withdrawn_bases={VERSION: text})
    body = card.split("\n---\n", 1)[1]
    ours = ("**Withdrawn.**", f"**Continues from `{VERSION}`, which was withdrawn.**")
    for words in ours:
        body = body.replace(words, "", 1)
    page = MarkdownIt().enable("table").render(body)
    assert not MADE_BY_LINKS.search(page), page
    prose = re.sub(r"`[^`\n]*`", "", body)  # within code nothing becomes a link
    assert not re.search(r"https?://|www\.\w|\w@\w", prose), prose


def descriptions(data: bytes) -> None:
    """The stored descriptions of groups: what has their form is shown as text."""
    with tempfile.TemporaryDirectory() as scratch:
        file = descriptions_file(Path(scratch), VERSION)
        file.parent.mkdir()
        file.write_bytes(data)
        try:
            describe_groups(read_descriptions(Path(scratch), VERSION))
        except RowsieveError as error:
            assert file.name in str(error)


@cache
def _table() -> Path:
    folder = Path(tempfile.mkdtemp()) / "t"
    (folder / "_delta_log").mkdir(parents=True)
    return folder


SCHEMA = {"type": "struct", "fields": [{"name": "k", "type": "long", "nullable": True, "metadata": {}}]}
HEAD = (
    {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
        }
    },
    {
        "metaData": {
            "id": RUN,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(SCHEMA),
            "partitionColumns": [],
            "configuration": {},
            "createdTime": 0,
        }
    },
)


def delta_log(data: bytes) -> None:
    """Lines of a Delta table's log: those that stand alone, and the name of a data file and a vector."""
    text = data.decode("utf-8", "replace")
    vector = {"storageType": "u", "pathOrInlineDv": text, "offset": 1, "sizeInBytes": 4, "cardinality": 1}
    add = {"path": text, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    head = "".join(json.dumps(line) + "\n" for line in HEAD).encode()
    lines = (data, *(json.dumps({"add": add | more}).encode() for more in ({}, {"deletionVector": vector})))
    for line in lines:
        (_table() / "_delta_log" / f"{0:020}.json").write_bytes(head + line)
        delta._read_log.cache_clear()
        try:
            open_source(str(_table()), format="delta").list()
        except (ConnectorError, RowsieveError):
            pass
        assert os.listdir(_table()) == ["_delta_log"]
