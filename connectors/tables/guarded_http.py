"""HTTP sessions for catalogs: no connection to a metadata service, and no credentials of the environment.

pyiceberg makes its sessions itself, follows redirects and takes over what a catalog answers: its address, its
kind of authentication, and whether requests are signed with keys of AWS. This session checks each request.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from connectors.errors import ConnectorError
from connectors.policy import current_policy, is_metadata_address

KEY = "source.options.catalog.uri"
MAX_ANSWER_BYTES = 64 * 2**20
"""Bytes of an answer, unpacked: it holds the metadata of a table, of which as many are read from a file."""
CHUNK_BYTES = 2**16
AMBIENT_MANAGERS = ("GoogleAuthManager", "EntraAuthManager")
"""Classes of pyiceberg that send tokens of the environment."""


def _checked(connection: Any, sock: Any) -> Any:
    """Close a new connection whose other end is a metadata service: the name may have changed its address."""
    address = sock.getpeername()[0]
    if is_metadata_address(address) and address not in (current_policy().hosts or ()):
        sock.close()
        raise PermissionError(f"{connection.host} is the metadata service of a cloud, which is not a catalog")
    return sock


class _Connection(HTTPConnection):
    def _new_conn(self) -> Any:
        return _checked(self, super()._new_conn())


class _SecureConnection(HTTPSConnection):
    def _new_conn(self) -> Any:
        return _checked(self, super()._new_conn())


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class GuardedAdapter(HTTPAdapter):
    """Checks the host of every request, redirected ones included, and the address that is connected to."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pools with connections that are checked."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        """Send a request and read its answer.

        Raises ConnectorError for a host that the policy refuses, and an answer that is too large.
        """
        host = urlsplit(str(request.url)).hostname or ""
        current_policy().check_host(host, KEY)
        answer = super().send(request, *args, **kwargs)
        body = bytearray()
        for chunk in answer.iter_content(CHUNK_BYTES):
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                answer.close()
                raise ConnectorError(
                    f"{KEY}: {host} answers with more than {MAX_ANSWER_BYTES:,} bytes, which would be held "
                    f"in memory. Expire old snapshots of the table, or ask whoever runs the catalog."
                )
        answer._content = bytes(body)  # what requests gives to whoever asks for the content
        return answer


class GuardedSession(Session):
    """A session of ``requests`` whose every request is checked against the policy."""

    def mount(self, prefix: str, adapter: BaseAdapter) -> None:
        """Use an adapter; one that signs with AWS keys only for hosts that the administrator names."""
        if type(adapter) is HTTPAdapter:  # what a session mounts by itself
            adapter = GuardedAdapter()
        if not isinstance(adapter, GuardedAdapter):
            current_policy().check_ambient([urlsplit(prefix).hostname or ""], KEY)
        super().mount(prefix, adapter)

    def send(self, request: PreparedRequest, **kwargs: Any) -> Any:
        """Send a request. Raises ConnectorError where a token of the environment would go to a stranger."""
        manager = type(getattr(self.auth, "auth_manager", None)).__name__
        if manager in AMBIENT_MANAGERS:
            current_policy().check_ambient([urlsplit(str(request.url)).hostname or ""], KEY)
        return super().send(request, **kwargs)


class GuardedRequests:
    """Stands for ``requests`` in the modules of pyiceberg that ask for tokens and signatures by it."""

    Session = GuardedSession

    @staticmethod
    def post(url: str, **settings: Any) -> Response:
        """Send one request by a guarded session."""
        with GuardedSession() as session:
            return session.post(url, **settings)
