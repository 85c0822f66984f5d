"""Connection to a cluster's Jobs API: address, token, and errors that say what to do."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engine.core.errors import InfeasibleError, InputError, RowsieveError, one_line

DEFAULT_PORT = 8265
CONNECT_SECONDS = 10.0
# Ray prefers these variables to the address it is given; here the address that the user typed has priority.
OVERRIDES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")


def connect(address: str) -> Any:
    """Return a ``ray.job_submission.JobSubmissionClient`` that has reached the cluster.

    Raises
    ------
    InputError
        The address is invalid, a token is missing or refused, or the extra ``deploy`` is not installed.
    InfeasibleError
        No cluster answers at the address.

    """
    url = checked_address(address)
    _check_reachable(url)
    token = find_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        from ray.job_submission import JobSubmissionClient
    except ImportError as error:
        raise _missing_client(error) from None
    for name in ("dashboard_sdk", "job.sdk"):
        logging.getLogger(f"ray.dashboard.modules.{name}").setLevel(logging.WARNING)
    kept = {name: os.environ.pop(name) for name in OVERRIDES if name in os.environ}
    try:
        with clear_errors(url):
            return JobSubmissionClient(url, headers=headers)
    finally:
        os.environ.update(kept)


def checked_address(address: str) -> str:
    """Return ``http://host:port`` of the head node's dashboard. Raises InputError for any other address."""
    text = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # a port or an address of IPv6 that is none
        parts, port = urlsplit(""), 0
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise InputError(
            f"--address {address}: give the dashboard of the head node, for example "
            f"http://head:{DEFAULT_PORT} (not ray://, not the port of the nodes)."
        )
    if parts.username or parts.password:
        raise InputError(
            "--address: it names a user or a password. Leave them out; the token comes from RAY_AUTH_TOKEN."
        )
    if port is None and parts.scheme == "http" and not parts.path.strip("/"):  # a path is that of a proxy
        return f"http://{parts.netloc.rstrip(':')}:{DEFAULT_PORT}"
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


def find_token() -> str | None:
    """Return the token from RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ``~/.ray/auth_token``, as Ray does.

    The last one is used only with ``RAY_AUTH_MODE=token``, since it may belong to another cluster. Raises
    InputError if a token file is named and cannot be read.
    """
    mode = os.environ.get("RAY_AUTH_MODE", "").lower()
    if mode == "disabled":
        return None
    if token := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not named and mode != "token":
        return None
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        token = path.read_text("utf-8").strip()
    except OSError as error:
        raise InputError(
            f"The token file {path} cannot be read: {error.strerror}. Set "
            "RAY_AUTH_TOKEN, or correct RAY_AUTH_TOKEN_PATH."
        ) from None
    return token or None


@contextmanager
def clear_errors(url: str) -> Iterator[None]:
    """Convert the exceptions of Ray's client into subclasses of RowsieveError."""
    import ray.exceptions
    import requests

    try:
        yield
    except ray.exceptions.AuthenticationError as error:
        raise InputError(_refused(url, str(error))) from None
    except (ConnectionError, requests.exceptions.RequestException) as error:
        raise InfeasibleError(
            f"No Ray cluster answers at {url}: {one_line(error)}. Give the address of the head's dashboard "
            f"(port {DEFAULT_PORT} by default), and check that it runs (ray[default] on the head)."
        ) from None
    except RuntimeError as error:
        if isinstance(error, RowsieveError):
            raise
        if "ray[default]" in str(error):
            raise _missing_client(error) from None
        raise RowsieveError(f"The cluster at {url} says: {one_line(error)}") from None


def _refused(url: str, said: str) -> str:
    if said.startswith("Authentication required"):
        return (
            f"{url} asks for a token, and none was sent (401). Set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH "
            f"to a file with it; RAY_AUTH_MODE=disabled switches tokens off."
        )
    return (
        f"{url} refuses the token it was sent (403). RAY_AUTH_TOKEN, or the file in RAY_AUTH_TOKEN_PATH, is "
        f"not this cluster's; on its head `ray get-auth-token` prints it."
    )


def _check_reachable(url: str) -> None:
    """Raise InfeasibleError within seconds if no server answers.

    Ray's client would wait as long as the operating system does.
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((str(parts.hostname), port), CONNECT_SECONDS).close()
    except OSError as error:
        raise InfeasibleError(
            f"No Ray cluster answers at {url}: {error.strerror or error}. Give the address of the head's "
            f"dashboard (port {DEFAULT_PORT} by default); from outside Kubernetes: "
            f"kubectl port-forward svc/NAME-head-svc {DEFAULT_PORT}."
        ) from None


def _missing_client(error: Exception) -> InputError:
    return InputError(
        f"Submitting needs Ray's jobs client ({one_line(error)}): pip install 'rowsieve[deploy]'."
    )
