"""HTTP client of fsspec: no connection to a host that the policy refuses, and no answer that expands."""

from __future__ import annotations

import socket
from typing import Any

from connectors.errors import ConnectorError
from connectors.policy import current_policy, is_metadata_address


async def guarded_client(**settings: Any) -> Any:
    """Return an HTTP client that connects to no host that the policy refuses, also not after a redirect.

    The address is checked again when the socket is made, because a name may resolve to another one by then.
    No answer is expanded: a few megabytes could stand for gigabytes, whatever length was stated.
    """
    import aiohttp

    class Connector(aiohttp.TCPConnector):
        async def connect(self, req: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                current_policy().check_host(req.url.host or "")
            except ConnectorError as error:
                raise PermissionError(str(error)) from None
            return await super().connect(req, *args, **kwargs)

    settings |= {
        "auto_decompress": False,
        "headers": {**(settings.get("headers") or {}), "Accept-Encoding": "identity"},
    }
    return aiohttp.ClientSession(connector=Connector(socket_factory=_guarded_socket), **settings)


def _guarded_socket(info: Any) -> socket.socket:
    family, kind, protocol, _, address = info
    if is_metadata_address(address[0]) and address[0] not in (current_policy().hosts or ()):
        raise PermissionError(f"{address[0]} is the metadata service of a cloud, which is not a source")
    return socket.socket(family, kind, protocol)
