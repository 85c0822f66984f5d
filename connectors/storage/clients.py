"""Clients of object stores by their URI. Only this module imports obstore's stores, at the first use."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from connectors.base import ConnectorError
from connectors.locations import AZURE
from connectors.policy import current_policy

if TYPE_CHECKING:
    from obstore.store import ObjectStore

S3, GCS = ("s3", "s3a"), ("gs", "gcs")
NOBODY = '{"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": true}'
"""Account of Google's store that asks for no token; ``skip_signature`` holds for reads alone."""
RETRIES, RETRY_SECONDS = 10, 120
"""Most repetitions and seconds for requests that fail with 5xx, 429 or without an answer."""


def split_uri(uri: str) -> tuple[str, str]:
    """Return the URI of the bucket with its settings, and the key; for ``file://`` an empty URI and the path.

    Raises ConnectorError for another scheme, no bucket, a key with ``..``, or without obstore.
    """
    parts = urlsplit(uri)
    key = unquote(parts.path)
    if parts.scheme == "file":
        return "", key
    where = f"{parts.scheme}://{parts.hostname or ''}"
    if parts.scheme not in (*S3, *GCS, *AZURE):
        raise ConnectorError(
            f"{where}...: an output lies in a folder, or at s3://, gs://, az:// or abfss://, "
            f"not {parts.scheme}://."
        )
    if not parts.hostname:
        raise ConnectorError(f"{where} names no bucket. Write {parts.scheme}://BUCKET/PREFIX.")
    names = [name for name in key.split("/") if name]
    if any(name in (".", "..") for name in names):
        raise ConnectorError(
            f"{where}{key}: the key of an object contains no '.' or '..'. Write the path without them."
        )
    if find_spec("obstore") is None:
        raise ConnectorError(
            f"{where}: an output on an object store needs obstore: pip install 'rowsieve[storage]'."
        )
    return urlunsplit((parts.scheme, parts.netloc, "", parts.query, "")), "/".join(names)


def uri_without_secrets(root: str) -> str:
    """Return a bucket's URI without keys and settings, for messages."""
    parts = urlsplit(root)
    host = parts.netloc.rpartition("@")[2]
    container = f"{parts.username}@" if parts.scheme in ("abfs", "abfss") and parts.username else ""
    return f"{parts.scheme}://{container}{host}"


@lru_cache(maxsize=32)
def client(root: str) -> ObjectStore:
    """Return the client of a bucket, one for each process.

    Keys and endpoint come from the URI, written as pyarrow's filesystems have it
    (``s3://KEY:SECRET@bucket/prefix?region=...&endpoint_override=host:port&scheme=http``), else from the
    environment (AWS_*, GOOGLE_*, AZURE_*), else from the machine's role. Raises ConnectorError.
    """
    from obstore import store

    current_policy().check_uri(root, "output.path")
    parts = urlsplit(root)
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    endpoint = _endpoint(query)
    common: dict[str, Any] = {
        "retry_config": {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        "client_options": {"allow_http": _is_plain(endpoint)},
    }
    if parts.password:
        common["credential_provider"] = _own_keys(parts.scheme, parts.username or "", parts.password)
    try:
        if parts.scheme in S3:
            config = _given(region=query.get("region", ""), endpoint=endpoint)
            return store.S3Store(parts.hostname, config=config, **common)
        if parts.scheme in GCS:
            anonymous = NOBODY if parts.username == "anonymous" else ""  # as pyarrow's filesystem has it
            config = _given(base_url=endpoint, service_account_key=anonymous)
            return store.GCSStore(parts.hostname, config=config, **common)
        # abfss://CONTAINER@ACCOUNT.dfs.core.windows.net, or az://CONTAINER
        account = (parts.hostname or "").partition(".")[0] if parts.username else ""
        config = _given(account_name=account, endpoint=endpoint)
        return store.AzureStore(parts.username or parts.hostname, config=config, **common)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ConnectorError(
            f"Cannot open {uri_without_secrets(root)}: {reason}. Correct its access settings."
        ) from None


def _endpoint(query: dict[str, str]) -> str:
    host = query.get("endpoint_override", "")
    return host if not host or "://" in host else f"{query.get('scheme', 'https')}://{host}"


def _is_plain(endpoint: str) -> bool:
    """Return whether the endpoint, of the URI or of the environment, was written as http://, without TLS."""
    named = [endpoint, *(os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"))]
    return any(name.startswith("http://") for name in named)


def _own_keys(scheme: str, user: str, password: str) -> Any:
    """Return a provider of the keys in a URI.

    As settings, obstore would combine them with tokens of the environment.
    """
    secret = unquote(password)
    if scheme in S3:
        keys = {"access_key_id": unquote(user), "secret_access_key": secret, "token": None}
    else:
        keys = {"access_key": secret}
    return lambda: keys | {"expires_at": None}


def _given(**settings: str) -> Any:
    """Return the settings that are not empty; obstore takes the others from the environment."""
    return {key: value for key, value in settings.items() if value}
