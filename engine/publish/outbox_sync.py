"""Delivery of the records that wait for MLflow in an output, one after the other.

A record that cannot be delivered does not hold up those after it, unless the server itself does not answer.
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from connectors.storage import Place
from engine.core.errors import InputError, one_line
from engine.publish.mlflow_outbox import (
    KILLED,
    RUNNING,
    Record,
    RefusedRecordError,
    deliver,
    pending,
    pending_folder,
    refusal_text,
    warn_of_others,
)
from engine.storage.lease import has_active_writer

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

TRAINING_FOLDER = re.compile(r"models/[0-9a-f]{12}")
LONG_TRY = 10.0
"""Seconds from which a try to deliver is long. One that is refused takes as long as MLflow takes to import
and to ask once more, some four seconds."""
_log = logging.getLogger("rowsieve")


def sync(client: MlflowClient, output: Place, *, has_lease: bool = False) -> tuple[int, int, int]:
    """Deliver the records that wait; return how many were delivered, are of runs that go on, and failed.

    A record that the server refuses is set aside, and one that fails while the server answers stays. Both are
    warned of, do not hold up those after them, and count as failed.

    Parameters
    ----------
    has_lease
        The caller has the output's lease, so a record with the status RUNNING is of a killed run.

    Raises
    ------
    InputError
        The output's own database names a place outside the output for the artifacts.
    Exception
        The server does not answer; the class is MLflow's.

    """
    delivered, active, failed = 0, 0, 0
    warn_of_others(output)
    for record in pending(output):
        if record.status == RUNNING:
            if _is_active(record, output, has_lease=has_lease):
                active += 1
                continue
            record.status, record.end_ms = KILLED, record.start_ms
        taken = _try(record, client, output)
        delivered, failed = delivered + taken, failed + (not taken)
    return delivered, active, failed


def _try(record: Record, client: MlflowClient, output: Place) -> bool:
    """Deliver a record that waits; return False after a warning if the record is at fault.

    Raises the error if the server is at fault: it does not answer now, or the try was a long one.
    """
    started = time.monotonic()
    try:
        deliver(record, client, output)
    except RefusedRecordError as error:
        _log.warning("%s", refusal_text(record, output, error))
        return False
    except InputError:
        raise
    except Exception as error:  # MLflow's client raises errors of many kinds
        if time.monotonic() - started >= LONG_TRY or not _answers(client):
            raise
        _log.warning(
            "MLflow answers, but does not take the record of %r (%s). It stays as %s; if this comes again, "
            "correct or remove the file.",
            record.name,
            one_line(error),
            pending_folder(output) / f"{record.id}.json",
        )
        return False
    record.forget(output)
    return True


def _answers(client: MlflowClient) -> bool:
    """Return whether the server answers a simple question."""
    with suppress(Exception):
        client.search_experiments(max_results=1)
        return True
    return False


def _is_active(record: Record, output: Place, *, has_lease: bool) -> bool:
    """Return whether the run or training that writes a record goes on."""
    if TRAINING_FOLDER.fullmatch(record.lease):
        return has_active_writer(output / record.lease)
    return not has_lease and has_active_writer(output)
