"""Starts or joins Ray without its log output, with the settings that small shards need."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from engine.core.errors import InfeasibleError
from engine.core.policy import current_policy
from engine.execution.job import ShardExecutor
from engine.execution.local_executor import LocalExecutor
from engine.recipe.recipe import RunSection

_log = logging.getLogger("rowsieve")
# Set before Ray is imported, so that its processes inherit them. Values that the user has set stay.
QUIET = {
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_DEDUP_LOGS": "1",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}
DEFAULTS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray Train reports once per controller poll: 2 s by default, which dominates short trainings.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
}
MIN_CPUS = 4
"""Minimum number of CPUs that Ray is started with. Ray Data and Ray Train each reserve one."""


@contextmanager
def executor(spec: RunSection, *, verbose: bool = False) -> Iterator[ShardExecutor]:
    """Yield the recipe's executor. Ray is started, and stopped at the end, only if it does not run yet.

    The planner resolves ``auto`` for a run; elsewhere it means Ray where a cluster is named.
    """
    named = None if spec.executor == "local" else spec.ray_address()
    if spec.executor == "local" or (spec.executor == "auto" and not named):
        yield LocalExecutor()
        return
    set_environment(verbose)
    address = named
    if not address:
        _set_token()
    with nullcontext() if verbose else _hushed():
        import ray

        ours = not ray.is_initialized()
        if ours:
            _start(spec, address, verbose)
    _quieten(verbose)
    from engine.execution.lost_hosts import ending_connections_to_lost_hosts
    from engine.execution.ray_executor import RayExecutor

    # Ray may have been started with more CPUs than the machine has (see MIN_CPUS). Work uses the real number.
    real = None if address else os.cpu_count()
    try:
        most = current_policy().max_operator_bytes
        logged = messages_logged() if ours and not verbose else nullcontext()
        shared = bool(address) or not ours  # a caller who has joined Ray may have joined a cluster
        with logged, ending_connections_to_lost_hosts() if shared else nullcontext():
            yield RayExecutor(spec.shards_in_flight or real, spec.no_progress_seconds, most)
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def messages_logged() -> Iterator[None]:
    """Log Ray's messages on workers that died, which it otherwise prints to standard output, with traces.

    ``log_to_driver`` has no effect on them, and standard output holds the records of ``--json``.
    """
    from ray._private import worker

    printed = worker.print_to_stdstream
    worker.print_to_stdstream = _log_message
    try:
        yield
    finally:
        worker.print_to_stdstream = printed


def _log_message(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:
    _log.debug("Ray: %s", "\n".join(map(str, data.get("lines", ()))))


def set_environment(verbose: bool) -> None:
    """Set the environment variables of Ray that the user has not set."""
    for name, value in (DEFAULTS if verbose else DEFAULTS | QUIET).items():
        os.environ.setdefault(name, value)


def _set_token() -> None:
    """Set a token for the Ray of this process; Ray's default is a file in the home folder that all can read.

    Ray reads the mode when it is imported, so a caller that has imported it keeps its own mode.
    """
    if "RAY_AUTH_MODE" not in os.environ and "ray" not in sys.modules:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _start(spec: RunSection, address: str | None, verbose: bool) -> None:
    import ray

    noise: dict[str, Any] = {"log_to_driver": verbose, "logging_level": "INFO" if verbose else "ERROR"}
    if not address:
        cpus = spec.cpus or max(os.cpu_count() or 1, MIN_CPUS)
        memory = spec.object_store_mb * 2**20
        sizes = {"num_cpus": cpus, "object_store_memory": memory}
        ray.init(address="local", include_dashboard=False, job_config=_job_config(), **sizes, **noise)
        return
    try:
        ray.init(address=address, job_config=_job_config(), **noise)
    except ConnectionError as error:
        raise InfeasibleError(
            f"No Ray cluster answers at {address!r}: {error}. Start one, or leave out run.address "
            f"and RAY_ADDRESS to run on this machine."
        ) from None


class SafePaths(list[str]):
    """Folders from which Ray's workers import: only those from which this process imports.

    Ray adds the working directory, which may be a folder of untrusted data with a ``json.py`` in it.
    """

    def extend(self, paths: Iterable[str]) -> None:
        """Append the paths that this process imports from."""
        own = {os.path.abspath(path) for path in sys.path}  # "" is the current folder
        super().extend(path for path in paths if os.path.abspath(path) in own)


def _job_config() -> Any:
    """Return Ray's configuration of a job whose workers import from the same folders as this process."""
    from ray.job_config import JobConfig

    config = JobConfig()
    config._py_driver_sys_path = SafePaths(config._py_driver_sys_path)
    return config


def _quieten(verbose: bool) -> None:
    import ray.data

    context = ray.data.DataContext.get_current()
    context.print_on_execution_start = verbose
    context.enable_progress_bars = verbose
    if not verbose:
        for name in ("ray", "ray.train"):
            logging.getLogger(name).setLevel(logging.ERROR)
        # It prints the trace of an error that it then raises, and the executor tells of that one.
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)


@contextmanager
def _hushed() -> Iterator[None]:
    """Hide the output of Ray's native code on standard error during the start, unless the start fails."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as scratch:
        os.dup2(scratch.fileno(), 2)
        try:
            yield
        except BaseException:
            scratch.seek(0)
            os.write(kept, scratch.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
