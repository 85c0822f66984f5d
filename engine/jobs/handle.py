"""Client side of a job on a Ray cluster: its state, its output and its cancellation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any

from connectors.foundation.messages import nearest
from engine.core.errors import Exit, InputError
from engine.jobs.connection import clear_errors, connect
from engine.jobs.key import JobState, exit_code

POLL_SECONDS = 1.0


@dataclass(frozen=True)
class JobInfo:
    """The cluster's record of a job. Times are UTC, and None for events that have not happened yet."""

    id: str
    state: JobState
    message: str
    started: datetime | None
    ended: datetime | None
    driver_exit_code: int | None
    metadata: Mapping[str, str]

    @property
    def exit_code(self) -> Exit:
        """Exit code of ``rowsieve run`` in the job; CRASH if the job did not end by itself."""
        return exit_code(self.state, self.driver_exit_code)

    @property
    def description(self) -> str:
        """The state in a few words, with its time."""
        times = {JobState.RUNNING: self.started, JobState.PENDING: None}
        when = times.get(self.state, self.ended)
        word = "since" if self.state == JobState.RUNNING else "at"
        return self.state.lower() + (f" {word} {when.isoformat(timespec='seconds')}" if when else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-able values, with times in ISO format."""
        times = {"started": self.started, "ended": self.ended}
        return {
            "id": self.id,
            "state": str(self.state),
            "message": self.message,
            **{name: value.isoformat(timespec="seconds") if value else None for name, value in times.items()},
            "exit_code": int(self.exit_code) if self.state.is_final else None,
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True)
class JobHandle:
    """One job. Its methods raise RowsieveError if the cluster cannot be reached any more."""

    address: str
    id: str
    _client: Any = field(repr=False, compare=False)

    def status(self) -> JobInfo:
        """Return state, times, exit code and metadata. Raises InputError if the cluster has no such job."""
        with clear_errors(self.address):
            try:
                return _info(self._client.get_job_info(self.id))
            except RuntimeError as error:
                if "status code 404" not in str(error):
                    raise
        known = list_jobs(self.address, self._client)
        hint = nearest(self.id, known) or (f" It knows: {', '.join(sorted(known)[-5:])}." if known else "")
        raise InputError(f"The cluster at {self.address} has no job {self.id!r}.{hint}")

    def logs(self) -> str:
        """Return the whole output of the job so far."""
        self.status()
        with clear_errors(self.address):
            return str(self._client.get_job_logs(self.id) or "")

    def follow(self) -> Iterator[str]:
        """Yield the output of the job in pieces, from its start until the job ends."""
        self.status()
        with clear_errors(self.address):
            yield from _one_by_one(self._client.tail_job_logs(self.id))

    def wait(self, poll_seconds: float = POLL_SECONDS) -> JobInfo:
        """Block until the job has ended, and return its final record."""
        while not (info := self.status()).state.is_final:
            time.sleep(poll_seconds)
        return info

    def cancel(self) -> bool:
        """Stop the job and wait until it has stopped. Returns False if it had already ended.

        The work that the run has committed is kept, and another attempt continues from there.
        """
        if self.status().state.is_final:
            return False
        with clear_errors(self.address):
            self._client.stop_job(self.id)
        self.wait()
        return True


def attach(job: str, address: str) -> JobHandle:
    """Return a handle to a job that was submitted before. Raises InputError and InfeasibleError."""
    client = connect(address)
    return JobHandle(client.get_address(), job, client)


def list_jobs(address: str, client: Any = None) -> dict[str, JobInfo]:
    """Return the jobs submitted by the cluster's Jobs API, by id. Raises InputError and InfeasibleError."""
    client = client or connect(address)
    with clear_errors(address):
        return {job.submission_id: _info(job) for job in client.list_jobs() if job.submission_id}


def jobs_of(recipe: str, address: str) -> list[JobInfo]:
    """Return the jobs of the named recipe, oldest first. Raises InputError and InfeasibleError."""
    found = [job for job in list_jobs(address).values() if job.metadata.get("recipe") == recipe]
    return sorted(found, key=lambda job: (job.started is None, job.started, job.id))


def _info(job: Any) -> JobInfo:
    return JobInfo(
        id=job.submission_id,
        state=JobState(str(job.status.value)),
        message=job.message or "",
        started=_time(job.start_time),
        ended=_time(job.end_time),
        driver_exit_code=job.driver_exit_code,
        metadata=job.metadata or {},
    )


def _time(milliseconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


def _one_by_one(pieces: AsyncIterator[str]) -> Iterator[str]:
    """Turn an asynchronous iterator into a synchronous one."""
    if _is_in_loop():
        yield from _in_a_thread(pieces)
        return
    with asyncio.Runner() as runner:
        while (piece := runner.run(_next(pieces))) is not None:
            yield piece


async def _next(pieces: AsyncIterator[str]) -> str | None:
    return await anext(pieces, None)


def _is_in_loop() -> bool:
    """Return whether this thread runs an event loop, as a notebook's does; a second one cannot run then."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_a_thread(pieces: AsyncIterator[str]) -> Iterator[str]:
    """Yield the pieces from an event loop in another thread, which ends with this iterator."""
    found: SimpleQueue[str | None] = SimpleQueue()

    async def fetch() -> None:
        try:
            async for piece in pieces:
                found.put(piece)
        finally:
            found.put(None)

    loop = asyncio.new_event_loop()
    task = loop.create_task(fetch())
    with futures.ThreadPoolExecutor(max_workers=1) as threads:
        ended = threads.submit(loop.run_until_complete, task)
        try:
            while (piece := found.get()) is not None:
                yield piece
            ended.result()
        finally:
            if not ended.done():
                loop.call_soon_threadsafe(task.cancel)
            futures.wait([ended])
            loop.close()
