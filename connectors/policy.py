"""Limits on what a recipe may reach: URI schemes, hosts, environment variables and Python modules.

A recipe and the tables that it reads are untrusted. The administrator, who starts the process, decides what
they may open: by the environment variables below, or by :func:`set_policy`. A source carries its policy to
the workers (``SourceSpec.policy``). The defaults open files, object stores, web pages and databases, but no
address of a cloud's metadata service, no variable of the environment and no module of a stranger.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import parse_qsl, unquote, urlsplit

from connectors.errors import ConnectorError
from connectors.locations import AZURE, NATIVE, plain_place

SCHEMES_VARIABLE = "ROWSIEVE_SCHEMES"
HOSTS_VARIABLE = "ROWSIEVE_HOSTS"
NAMES_VARIABLE = "ROWSIEVE_ENVIRONMENT_NAMES"
MODULES_VARIABLE = "ROWSIEVE_FACTORIES"
PROFILES_VARIABLE = "ROWSIEVE_PROFILES"
STRICT_VARIABLE = "ROWSIEVE_STRICT"
DEPTH_VARIABLE = "ROWSIEVE_MAX_JSON_DEPTH"
SECONDS_VARIABLE = "ROWSIEVE_MAX_SECONDS"
BYTES_VARIABLE = "ROWSIEVE_MAX_BYTES"
OUTPUTS_VARIABLE = "ROWSIEVE_OUTPUTS"

OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", *AZURE})
SCHEMES = OBJECT_STORES | {
    "file",
    "hdfs",
    "viewfs",
    "http",
    "https",
    "hf",
    "memory",
    "postgresql",
    "postgres",
    "sqlite",
    "duckdb",
}
"""URI schemes that are opened by default."""
STRICT_SCHEMES = OBJECT_STORES | {"file", "hdfs", "viewfs", "sqlite", "duckdb"}
"""URI schemes that are opened with ``ROWSIEVE_STRICT``: those of files and object stores."""
STRICT_BYTES = 10**13
"""Bytes of a source's files that are opened with ``ROWSIEVE_STRICT`` unless the administrator sets them."""
JSON_DEPTH, MAX_JSON_DEPTH = 100, 1000
"""Levels of lists and objects in JSON: by default, and at most. Arrow parses them by recursion."""
FILES_IN_URIS = ("kerb_ticket", "tls_ca_file_path")
"""Settings of a URI that name files of the administrator: tickets of Kerberos, certificates."""
METADATA_HOSTS = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
METADATA_ADDRESSES = frozenset(
    ipaddress.ip_address(text)
    for text in (
        *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42"),
        *("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    )
)
"""Metadata services; the link-local ranges are refused as a whole."""
NAT64 = ipaddress.ip_network("64:ff9b::/96")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
ENDPOINT_VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "PGHOST",
)
"""Variables by which whoever starts the process names the hosts of its stores and databases."""
_NAMES_A_HOST = re.compile(r"endpoint|host|authority|proxy|ur[il]$", re.IGNORECASE)
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")


@dataclass(frozen=True)
class SourcePolicy:
    """Limits on what sources and exports may open.

    Parameters
    ----------
    schemes : URI schemes that may be opened. Local paths need none.
    hosts : patterns such as ``*.example.org``; None: any host. Metadata services are refused in both cases
        unless a pattern without wildcards names them. Credentials of the environment are sent to an endpoint
        that a URI names only where a pattern other than ``*`` fits it.
    variables : environment variables that ``${NAME}`` may stand for in the user and password of a database's
        URL.
    modules : Python modules, each with what lies below it, that the properties of an Iceberg catalog may
        name.
    profiles : profiles and roles of AWS, and tickets of Kerberos, that the properties of a catalog may name:
        each makes the reader act as somebody whom the administrator has set up for other work.
    outside_links : whether symbolic links in a source's folder may lead out of it.
    json_depth : levels of lists and objects that a row of JSON may have.
    seconds : time that a run may take, which is also the limit of a database's statement; None: no limit.
    max_bytes : bytes of a source's files as they are stored; None: no limit.
    outputs : places that a recipe may write, as patterns of what :func:`plain_place` returns; None: any.
    """

    schemes: frozenset[str] = SCHEMES
    hosts: tuple[str, ...] | None = None
    variables: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    outside_links: bool = False
    json_depth: int = JSON_DEPTH
    seconds: int | None = None
    max_bytes: int | None = None
    outputs: tuple[str, ...] | None = None

    @classmethod
    def from_environment(cls) -> SourcePolicy:
        """Read the policy from ``ROWSIEVE_SCHEMES`` and so on: lists with commas between."""
        found = os.environ
        schemes = frozenset(name.lower() for name in _listed(found, SCHEMES_VARIABLE))
        strict = found.get(STRICT_VARIABLE, "").strip().lower() in ("1", "true")
        return cls(
            schemes=schemes if SCHEMES_VARIABLE in found else STRICT_SCHEMES if strict else SCHEMES,
            hosts=_listed(found, HOSTS_VARIABLE) if HOSTS_VARIABLE in found else None,
            variables=_listed(found, NAMES_VARIABLE),
            modules=_listed(found, MODULES_VARIABLE),
            profiles=_listed(found, PROFILES_VARIABLE),
            json_depth=min(_number(found, DEPTH_VARIABLE) or JSON_DEPTH, MAX_JSON_DEPTH),
            seconds=_number(found, SECONDS_VARIABLE),
            max_bytes=_number(found, BYTES_VARIABLE) or (STRICT_BYTES if strict else None),
            outputs=_listed(found, OUTPUTS_VARIABLE) if OUTPUTS_VARIABLE in found else None,
        )

    def check_uri(self, uri: str, key: str = "source.path", known: Collection[str] = ()) -> None:
        """Raise ConnectorError, which names ``key``, unless the path or URI may be opened.

        Schemes in ``known`` are allowed too: those of formats that other installed packages bring.
        """
        scheme, mark, _ = uri.partition("://")
        if not mark:
            if "file" not in self.schemes:
                raise ConnectorError(
                    f"{key}: {uri}: local files are not opened. Allowed are: "
                    f"{', '.join(sorted(self.schemes))}. Its administrator can add file to "
                    f"{SCHEMES_VARIABLE}."
                )
            return
        _check_spelling(uri, key)
        if scheme not in self.schemes and scheme not in known:
            raise ConnectorError(
                f"{key}: {uri}: URIs of the scheme {scheme!r} are not opened. Allowed are: "
                f"{', '.join(sorted(self.schemes))}. Whoever operates this installation can allow more with "
                f"{SCHEMES_VARIABLE}."
            )
        for host in _hosts(uri):
            self.check_host(host, key)
        endpoints = _endpoints(uri)
        if endpoints and not _has_own_credentials(uri):
            self.check_ambient(endpoints, key)

    def check_place(self, path: str, key: str) -> None:
        """Raise ConnectorError, which names ``key``, unless a recipe may write to a path or URI."""
        if self.outputs is None:
            return
        place = plain_place(path)
        if place is None or not any(fnmatchcase(place, pattern) for pattern in self.outputs):
            raise ConnectorError(
                f"{key}: {place or path} cannot be written to on this installation; allowed are: "
                f"{', '.join(self.outputs) or 'none'}. Its administrator can add it to {OUTPUTS_VARIABLE}."
            )

    def check_size(self, n_bytes: int) -> None:
        """Raise ConnectorError for a source whose files have more bytes, before any of them is opened."""
        if self.max_bytes is not None and n_bytes > self.max_bytes:
            raise ConnectorError(
                f"source.path: the source has {n_bytes:,} bytes, and {self.max_bytes:,} are allowed on this "
                f"installation. Name less of it; its administrator can raise {BYTES_VARIABLE}."
            )

    def check_ambient(self, hosts: Collection[str], key: str = "source.path") -> None:
        """Raise ConnectorError, which names ``key``, unless ambient credentials may go to the hosts.

        They may where the administrator names the host: in ``hosts``, or by the environment's own endpoint.
        """
        for host in map(_plain_name, hosts):
            named = any(pattern != "*" and fnmatchcase(host, pattern.lower()) for pattern in self.hosts or ())
            if named or host in _own_endpoints():
                continue
            raise ConnectorError(
                f"{key}: {host!r} is named as the endpoint, without keys of its own: the credentials of this "
                f"process would be sent there. Give keys with it, or leave the endpoint out. Whoever runs "
                f"this installation can name the host in AWS_ENDPOINT_URL or in {HOSTS_VARIABLE}."
            )

    def check_host(self, host: str, key: str = "source.path") -> None:
        """Raise ConnectorError, which names ``key``, unless connections to the host are allowed.

        A name is looked up, so that one which stands for a metadata service's address is refused as well.
        """
        name = _plain_name(host)
        if _FORBIDDEN.search(name):
            raise ConnectorError(
                f"{key}: {host!r} is not a host: it holds a blank, a backslash or a control character. "
                f"Correct it."
            )
        if not name or name in (self.hosts or ()):
            return
        if self.hosts is not None and not any(fnmatchcase(name, pattern.lower()) for pattern in self.hosts):
            raise ConnectorError(
                f"{key}: the host {host!r} is not among those that {HOSTS_VARIABLE} allows: "
                f"{', '.join(self.hosts)}. The administrator of this installation can add it there."
            )
        if name in METADATA_HOSTS or any(is_metadata_address(address) for address in _addresses(name)):
            raise ConnectorError(
                f"{key}: {host!r} is the metadata service of a cloud, which hands out credentials. It is not "
                f"a source. Whoever operates this installation can allow it by name with {HOSTS_VARIABLE}."
            )

    def check_module(self, path: str, key: str) -> None:
        """Raise ConnectorError, which names ``key``, unless ``package.module.name`` may be imported."""
        module = path.rpartition(".")[0] or path
        if any(module == name or module.startswith(f"{name}.") for name in self.modules):
            return
        raise ConnectorError(
            f"{key}: {path!r} would import the module {module!r} and run it. If you trust it, set "
            f"{MODULES_VARIABLE}={','.join([*self.modules, module])} in the environment, on every node."
        )

    def check_profile(self, name: str, key: str) -> None:
        """Raise ConnectorError, which names ``key``, unless a recipe may act as this profile or role."""
        if name in self.profiles:
            return
        raise ConnectorError(
            f"{key}: {name!r} is a profile, role or ticket of whoever runs this process, and a recipe would "
            f"act with its rights. Give keys of the recipe's own, or name a catalog that is defined in "
            f".pyiceberg.yaml. If you trust the recipe, set "
            f"{PROFILES_VARIABLE}={','.join([*self.profiles, name])} in the environment, on every node."
        )


def is_metadata_address(text: str) -> bool:
    """Return whether an IP address belongs to a metadata service or to a link-local range."""
    address: Address = ipaddress.ip_address(text.partition("%")[0])
    found = [address, *_embedded(address)]
    return any(one.is_link_local or one in METADATA_ADDRESSES for one in found)


def _embedded(address: Address) -> list[Address]:
    """Return the IPv4 addresses that an IPv6 address stands for: mapped, compatible, NAT64, 6to4 and
    Teredo; and that of a metadata service, by whatever prefix a network translates it.
    """
    if not isinstance(address, ipaddress.IPv6Address):
        return []
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    compatible = int(address) >> 32 == 0 or address in NAT64 or low in METADATA_ADDRESSES
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ()), low if compatible else None]
    return [one for one in found if one is not None]


_current: list[SourcePolicy] = []


def current_policy() -> SourcePolicy:
    """Return the policy that :func:`set_policy` gave to this process, else the one of the environment."""
    return _current[-1] if _current else SourcePolicy.from_environment()


def set_policy(policy: SourcePolicy | None) -> None:
    """Set the policy of this process; None returns to the one of the environment."""
    _current[:] = [] if policy is None else [policy]


def _listed(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in environment.get(name, "").split(",") if part.strip())


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").strip()
    return int(text[:20]) if text.isascii() and text.isdigit() else None


def _plain_name(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


def _check_spelling(uri: str, key: str) -> None:
    """Raise ConnectorError for a URI that two libraries may read in two ways.

    Such are capitals in the scheme, chains of filesystems, and signs that no host has; and a region, of which
    libraries make a host, that is more than a name.
    """
    scheme, _, rest = uri.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    bare = re.sub(r"\[[^]]*\]", "", rest)  # without an IPv6 address
    if "::" in scheme or (scheme not in NATIVE and "::" in bare):
        raise ConnectorError(
            f"{key}: {uri} chains several filesystems with '::', which is not allowed. Name one URI."
        )
    if scheme != scheme.lower():
        raise ConnectorError(f"{key}: {uri}: write the scheme in lower case, {scheme.lower()}://.")
    if _FORBIDDEN.search(authority) or (scheme in ("http", "https") and not authority):
        raise ConnectorError(
            f"{key}: {uri} names no host, or one with a blank or a backslash. Write it as SCHEME://HOST/PATH."
        )
    refused = [name for name, _ in _settings(uri, key) if name.lower() in FILES_IN_URIS]
    if refused and scheme in OBJECT_STORES | {"hdfs", "viewfs"}:
        raise ConnectorError(
            f"{key}: a URI cannot set {refused[0]}, which uses a file of whoever runs this process. Leave it "
            f"out; set KRB5CCNAME or AWS_CA_BUNDLE in the environment."
        )
    if scheme in OBJECT_STORES:
        region = next((value for name, value in _settings(uri, key) if name.lower() == "region"), "")
        if not re.fullmatch(r"[A-Za-z0-9-]*", region):
            raise ConnectorError(f"{key}: {region!r} is not a region: write a name such as eu-west-1.")


def _settings(uri: str, key: str = "source.path") -> list[tuple[str, str]]:
    """Return the names and values after a URI's question mark. Raises ConnectorError, which names ``key``."""
    try:
        return parse_qsl(urlsplit(uri).query)
    except ValueError as error:
        raise ConnectorError(f"{key}: {uri} is not a URI: {error}. Correct it.") from error


def _hosts(uri: str) -> Iterator[str]:
    """Return the hosts that opening a URI connects to, as far as the URI names them."""
    scheme = uri.partition("://")[0]
    settings = _settings(uri)
    authority = urlsplit(uri).netloc.rpartition("@")[2]
    if scheme not in OBJECT_STORES | {"hf", "memory", "sqlite", "duckdb", "file"}:
        yield from (_host_of(part) for part in authority.split(","))
    yield from _endpoints(uri) if scheme in OBJECT_STORES else _named_hosts(settings)


def _named_hosts(settings: list[tuple[str, str]]) -> Iterator[str]:
    for name, value in settings:
        if names_a_host(name):
            yield from hosts_named(value)


def _endpoints(uri: str) -> list[str]:
    """Return the hosts that the URI of an object store names in place of the store's own."""
    scheme = uri.partition("://")[0]
    if scheme not in OBJECT_STORES:
        return []
    found = [host for host in _named_hosts(_settings(uri)) if host]
    authority = urlsplit(uri).netloc.rpartition("@")[2]
    host = _host_of(authority)
    container = host == authority and "." not in host
    own = _plain_name(host).endswith((".dfs.core.windows.net", ".blob.core.windows.net"))
    return [*found, host] if scheme.startswith("abfs") and not (container or own) else found


def _has_own_credentials(uri: str) -> bool:
    """Return whether the URI of an object store has keys, or asks for none to be used."""
    parts = urlsplit(uri)
    if parts.scheme in ("gs", "gcs"):
        return parts.username == "anonymous"
    return bool(parts.username and parts.password)


def hosts_named(text: str) -> list[str]:
    """Return the hosts in a setting: URLs, or hosts with or without a port, with commas between."""
    parts = (part.strip().rpartition("://")[2].rpartition("@")[2] for part in text.split(","))
    return [host for part in parts if (host := _host_of(re.split(r"[/?#]", part, maxsplit=1)[0]))]


def names_a_host(setting: str) -> bool:
    """Return whether the name of a setting is one of those that hold a host or a URL."""
    return _NAMES_A_HOST.search(setting) is not None


def _own_endpoints() -> set[str]:
    given = (os.environ.get(name, "") for name in ENDPOINT_VARIABLES)
    return {_plain_name(_host_of(value.rpartition("://")[2])) for value in given if value}


def _host_of(authority: str) -> str:
    """Return the host of ``host:port`` or ``[address]:port``, without what follows a slash."""
    bare = unquote(authority.partition("/")[0])
    return bare.partition("]")[0].lstrip("[") if bare.startswith("[") else bare.partition(":")[0]


def _addresses(name: str) -> list[str]:
    """Return the IP addresses of a host; none where it cannot be looked up, since it cannot be
    reached then.
    """
    try:
        return [str(ipaddress.ip_address(name))]
    except ValueError:
        pass
    try:  # 2852039166, 0xa9fea9fe and 0251.0376.0251.0376 are addresses too
        return [socket.inet_ntoa(socket.inet_aton(name))]
    except OSError:
        pass
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(name, None)]
    except (OSError, UnicodeError):
        return []
