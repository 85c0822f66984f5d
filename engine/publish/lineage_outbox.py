"""The outbox for OpenLineage: events, kept as files in the output until the endpoint has them.

``runs/lineage/<run id>-<number>.json`` is one event; :mod:`engine.publish.outbox` has the rule for these
files. ``runs/lineage/<run id>.open.json`` says that a run has
started; a run that was killed leaves it, and is then reported as aborted. A thread delivers, so that an
endpoint that is away or slow never delays or fails a run.

The endpoint is configured by the client's own means only: the variables ``OPENLINEAGE_...``, the file that
``OPENLINEAGE_CONFIG`` names, or ``~/.openlineage/openlineage.yml``. The client would also read an
``openlineage.yml`` in the working directory, which may be a folder of somebody's data; that file is not read.

An output may be shared: an event is delivered only if its form is that of Rowsieve's events.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from connectors.base import ConnectorError
from connectors.storage import Place, remove_file
from engine.core.errors import InputError, one_line
from engine.core.json_files import read_json, write_json
from engine.core.redaction import redact_all
from engine.publish.lineage_facets import PRODUCER
from engine.publish.outbox import Outbox
from engine.publish.run_process import has_ended, hold, process_record
from operators.counts import count

_log = logging.getLogger("rowsieve")
FILE = "openlineage.yml"
NAMES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
PREFIX = "OPENLINEAGE__TRANSPORT"
EVENT = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(\d{6})\.json")
OPEN = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.open\.json")
FINAL = ("COMPLETE", "FAIL", "ABORT")
LAST_NUMBER = 999_999
"""Number of the event that ends a run, so that it is delivered after all others."""
REFUSALS = (400, 413, 415, 422)
"""HTTP statuses by which an endpoint refuses one event; others say that it takes none at present."""
WAIT_SECONDS = 2.0
"""Longest time that the end of a run waits for the delivery of its last events."""


def lineage_folder(output: Place) -> Place:
    """Return the folder in which events wait."""
    return output / "runs" / "lineage"


def is_configured() -> bool:
    """Return whether the environment names an endpoint and the client is installed. Imports nothing."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = any(os.environ.get(name) for name in NAMES) or any(name.startswith(PREFIX) for name in os.environ)
    if not (named or _home_file().is_file()):
        return False
    try:
        return find_spec("openlineage.client") is not None
    except ModuleNotFoundError:
        _log.warning(
            "The environment configures OpenLineage, but its client is not installed, so no events are sent: "
            "pip install 'rowsieve[openlineage]'."
        )
        return False


def _home_file() -> Path:
    return Path("~/.openlineage").expanduser() / FILE


def open_client() -> Any:
    """Return the client that the environment configures. Raises ValueError for a wrong configuration."""
    from openlineage.client import OpenLineageClient

    class Client(OpenLineageClient):  # type: ignore[misc]
        """The client without the file in the working directory."""

        @staticmethod
        def _find_yaml_config_path() -> str | None:
            named = os.environ.get("OPENLINEAGE_CONFIG")
            for path in (Path(named) if named else None, _home_file()):
                if path is not None and path.is_file():
                    return str(path)
            return None

    return Client()


def keep(output: Place, event: Mapping[str, Any], number: int) -> Place:
    """Write an event as a file of the outbox, without secrets; return its place."""
    return outbox_of(output).keep(f"{event['run']['runId']}-{number:06d}", redact_all(event))


def keep_open(output: Place, abort: Mapping[str, Any]) -> int | None:
    """Note that a run of this process has started, with the event that reports it as aborted if it is killed.

    Return the open file that says that the run goes on, if the note is one on a disk.
    """
    place = lineage_folder(output) / f"{abort['run']['runId']}.open.json"
    note = {"process": process_record(), "event": redact_all(abort)}
    write_json(place, note, durable=False, root=output)
    return hold(place)


def forget_open(output: Place, run_id: str, held: int | None) -> None:
    """Remove the note of :func:`keep_open`, which returned ``held``."""
    remove_file(lineage_folder(output) / f"{run_id}.open.json", root=output)
    if held is not None:
        os.close(held)


def outbox_of(output: Place) -> Outbox:
    """Return the outbox of an output: runs in the order of their start, events in their order."""
    return Outbox(output, lineage_folder(output), EVENT, durable=False)


def abort_killed(output: Place) -> None:
    """Turn the notes of runs whose processes have ended into ABORT events of the outbox."""
    notes: list[Place] = list(lineage_folder(output).glob("*.open.json"))
    for place in notes:
        match = OPEN.fullmatch(place.name)
        try:
            note = read_json(place, root=output)
            event = note["event"]
            dead = has_ended(place, note["process"], event["eventTime"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError, AttributeError):
            continue
        if match and dead and _is_ours(event, match[1]):
            keep(output, event, LAST_NUMBER)
            remove_file(place, root=output)


def _is_ours(event: Any, run_id: str) -> bool:
    """Return whether a value has the form of an event of Rowsieve for this run."""
    try:
        return (
            event["producer"] == PRODUCER
            and event["run"]["runId"] == run_id
            and event["eventType"] in ("START", "RUNNING", *FINAL)
            and all(_is_named(one) for one in (event["job"], *event["inputs"], *event["outputs"]))
            and _as_event(event) is not None
        )
    except (ValueError, KeyError, TypeError, AttributeError):  # the client checks the time and the facets
        return False


def _is_named(one: Any) -> bool:
    """Return whether a job or dataset of an event has a name, and facets by name."""
    facets = [one.get(key) or {} for key in ("facets", "inputFacets", "outputFacets")]
    return all(isinstance(one[key], str) for key in ("namespace", "name")) and all(
        isinstance(facet, dict) for found in facets for facet in (found, *found.values())
    )


def deliver(client: Any, output: Place, place: Place) -> bool:
    """Deliver one waiting event and remove its file; a file that is not an event of ours is left alone.

    Return whether the endpoint has taken it.

    An event that the endpoint refuses is set aside with a warning. Raises an exception of the client's if the
    endpoint takes no events.
    """
    match, outbox, name = EVENT.fullmatch(place.name), outbox_of(output), place.name.removesuffix(".json")
    try:
        event = outbox.read(place)
    except FileNotFoundError:
        return True  # another process has delivered it
    except (OSError, ValueError):
        return False
    if match is None or not _is_ours(event, match[1]):
        _log.warning("%s holds no event of Rowsieve and is not delivered. Remove it.", place)
        return False
    try:
        client.emit(_as_event(event))
    except Exception as error:  # the transports raise errors of many kinds
        if getattr(getattr(error, "response", None), "status_code", None) not in REFUSALS:
            raise
        aside = outbox.set_aside(name, event)
        reason = one_line(error)
        _log.warning("OpenLineage's endpoint refuses an event (%s). It is kept as %s.", reason, aside)
        return False
    outbox.forget(name)
    return True


def _as_event(event: Mapping[str, Any]) -> Any:
    from openlineage.client import event_v2

    return event_v2.RunEvent(
        eventType=event_v2.RunState(event["eventType"]),
        eventTime=event["eventTime"],
        run=event_v2.Run(event["run"]["runId"], event["run"].get("facets") or {}),
        job=event_v2.Job(event["job"]["namespace"], event["job"]["name"], event["job"].get("facets") or {}),
        inputs=[
            event_v2.InputDataset(
                one["namespace"],
                one["name"],
                facets=one.get("facets") or {},
                inputFacets=one.get("inputFacets") or {},
            )
            for one in event["inputs"]
        ],
        outputs=[
            event_v2.OutputDataset(
                one["namespace"],
                one["name"],
                facets=one.get("facets") or {},
                outputFacets=one.get("outputFacets") or {},
            )
            for one in event["outputs"]
        ],
        producer=event["producer"],
    )


@dataclass
class Sender:
    """Delivers the outbox of one output in a thread. The first error ends it; the events then wait."""

    output: Place
    _queue: SimpleQueue[bool] = field(default_factory=SimpleQueue)
    _thread: threading.Thread | None = None

    def notify(self) -> None:
        """Wake the thread, which delivers the waiting events."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="openlineage", daemon=True)
            self._thread.start()
        self._queue.put(False)

    def close(self) -> None:
        """Wait at most ``WAIT_SECONDS`` for the delivery. Other events stay in the outbox."""
        if self._thread is not None:
            self._queue.put(True)
            self._thread.join(WAIT_SECONDS)

    def _work(self) -> None:
        client = None
        try:
            client = open_client()
            last, left = False, set[str]()
            while not last:
                last = self._next()
                places = [place for place in outbox_of(self.output).waiting() if place.name not in left]
                # A file that holds no event is looked at once, as that is warned of.
                left.update(place.name for place in places if not deliver(client, self.output, place))
        except Exception as error:  # the transports raise errors of many kinds, and none may end the run
            _log.warning(
                "OpenLineage's endpoint does not take events (%s). The run goes on; they wait in %s and are "
                "delivered by the next run, or by `rowsieve lineage --sync --output %s`.",
                one_line(error),
                lineage_folder(self.output),
                self.output,
            )
        finally:
            if client is not None:
                client.close(WAIT_SECONDS)

    def _next(self) -> bool:
        """Wait for a notice and take those that have come since; return whether it is the last."""
        last = self._queue.get()
        while True:
            try:
                last = self._queue.get_nowait() or last
            except Empty:
                return last


def sync_events(output: Place) -> str:
    """Deliver the waiting events of an output; return a line that says how many, or nothing without any.

    Raises InputError if no endpoint is configured or it does not take them.
    """
    abort_killed(output)
    places = outbox_of(output).waiting()
    if not places:
        return ""
    if not is_configured():
        return (
            f"{count(len(places), 'event')} for OpenLineage to be sent: set OPENLINEAGE_URL, or "
            "OPENLINEAGE_CONFIG, and install 'rowsieve[openlineage]'."
        )
    try:
        client = open_client()
        taken = sum(deliver(client, output, place) for place in places)
        client.close(WAIT_SECONDS)
    except (InputError, ConnectorError):
        raise
    except Exception as error:
        reason = one_line(error)
        raise InputError(
            f"OpenLineage's endpoint does not take events: {reason}. They still "
            f"wait in {lineage_folder(output)}; check OPENLINEAGE_URL."
        ) from None
    return f"{taken:,} of {count(len(places), 'event')} delivered to OpenLineage."
