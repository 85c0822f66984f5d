"""Checks of what an Iceberg catalog and a table's metadata name, before pyiceberg follows it.

Properties of a catalog come from a recipe, from the catalog's answers and from a table's metadata file. They
can name modules to import, hosts to send credentials to, and files outside of the table. The source
(:mod:`connectors.tables.iceberg`) and the exports to Iceberg call these checks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from connectors.base import ConnectorError
from connectors.files import reading, resolve
from connectors.links import check_links, check_plain, check_regular
from connectors.policy import SourcePolicy, current_policy, hosts_named, names_a_host
from connectors.tables.common import check_database, library

IMPORTING_MODULES = (
    "pyiceberg.catalog",
    "pyiceberg.catalog.rest.auth",
    "pyiceberg.io",
    "pyiceberg.io.pyarrow",
    "pyiceberg.table.locations",
)
"""Modules that import what a property names."""
ASKING_MODULES = ("pyiceberg.catalog.rest.auth", "pyiceberg.io.fsspec")
"""Modules that ask for tokens and signatures at places that a property names."""
CONFIGURATION = ".pyiceberg.yaml"
MAX_HINT_BYTES = 1024
"""Bytes of ``version-hint.text`` that are read."""
OWN_MODULES = ("pyiceberg.io.pyarrow", "pyiceberg.io.fsspec")
OWN_KEYS = {
    "s3": ("s3.access-key-id", "client.access-key-id", "s3.anonymous"),
    "glue": ("glue.access-key-id", "client.access-key-id"),
    "dynamodb": ("dynamodb.access-key-id", "client.access-key-id"),
    "gcs": ("gcs.oauth2.token",),
    "adls": (
        "adls.account-key",
        "adls.sas-token",
        "adls.token",
        "adls.client-secret",
        "adls.connection-string",
        "adls.anon",
    ),
}
"""Kind of store -> properties with which its requests do not carry credentials of the environment."""
IDENTITIES = re.compile(r"(.+\.)?(profile[-_]name|role[-_]arn|kerberos[-_]ticket)")
"""Properties that choose as whom the reader acts, among those whom the administrator has set up."""
PLACES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""Properties of a table that say where its next files are written."""
PROPERTIES = re.compile(
    r"name|type|uri|warehouse|credential|token|scope|prefix|audience|resource|oauth2-server-uri"
    r"|token-refresh-enabled|rest\.sigv4-enabled|rest\.signing-(region|name)|init_catalog_tables"
    r"|downcast-ns-timestamp-to-us-on-read|(client|s3|gcs|adls|hdfs|glue)\.[a-z0-9.-]+"
)
"""Properties of a catalog that a recipe may set."""


def check_configuration(key: str) -> None:
    """Raise ConnectorError where pyiceberg has read its settings from the working directory.

    That may be a folder of data. pyiceberg joins what a file there says with the catalogs of the environment,
    so that it could send their credentials elsewhere.
    """
    named = [os.environ.get("PYICEBERG_HOME"), os.path.expanduser("~")]
    files = [os.path.join(folder, CONFIGURATION) for folder in named if folder]
    here = os.path.abspath(CONFIGURATION)
    if os.path.isfile(here) and not any(map(os.path.isfile, files)):
        raise ConnectorError(
            f"{key}: pyiceberg would take its catalogs from {here}, in the working directory. If you trust "
            f"that file, set PYICEBERG_HOME={os.path.dirname(here)} in the environment; else remove it."
        )


def sqlite_file(catalog: str | Mapping[str, str], key: str) -> str | None:
    """Return the SQLite file of a catalog that is given by its properties; None for other catalogs.

    Raises ConnectorError for options of SQLite's driver, which could name another file.
    """
    uri = catalog.get("uri", "") if not isinstance(catalog, str) else ""
    scheme, _, rest = uri.partition("://")
    if scheme.partition("+")[0] != "sqlite" or not rest.strip("/"):
        return None
    if "?" in rest or rest[1:].startswith("file:"):
        raise ConnectorError(f"{key}.uri: write sqlite:/// and the path of the file, without options.")
    return rest[1:]


def check_sqlite(catalog: str | dict[str, str]) -> None:
    """Raise ConnectorError for a catalog in a SQLite file that is not there: reading makes no files."""
    file = sqlite_file(catalog, "source.options.catalog")
    if file and not os.path.isfile(file):
        raise ConnectorError(
            f"source.options.catalog.uri: there is no file {file}. Correct the path; write no settings."
        )


def check_properties(properties: Mapping[str, str], key: str) -> None:
    """Raise ConnectorError unless a recipe may set these properties of a catalog.

    Others could load code (``py-catalog-impl``, ``auth``), or send credentials somewhere else.
    """
    policy = current_policy()
    for name, value in properties.items():
        if name.endswith("-impl"):
            policy.check_module(value, f"{key}.{name}")
        elif IDENTITIES.fullmatch(name):
            policy.check_profile(value, f"{key}.{name}")
        elif not PROPERTIES.fullmatch(name):
            raise ConnectorError(
                f"{key}.{name}: a recipe cannot set this property. It can set name, type, uri, warehouse, "
                f"credential, token, scope and those of storage (s3., gcs., adls., hdfs.). Define the "
                f"catalog in .pyiceberg.yaml or PYICEBERG_CATALOG__... and write its name instead."
            )
        elif "://" in value and name != "adls.connection-string":
            _check_url(policy, value, f"{key}.{name}")
    check_hosts(properties, key)


def check_hosts(properties: Mapping[str, str], key: str) -> None:
    """Raise ConnectorError for properties that name what the policy does not list.

    That is a metadata service, a host to which credentials of the environment would be sent, and a profile or
    role of the operator. Properties come from the recipe, from a catalog's answer and from a table's
    metadata file.
    """
    policy = current_policy()
    for name, value in properties.items():
        if value and IDENTITIES.fullmatch(name):
            policy.check_profile(value, f"{key}.{name}")
        hosts = hosts_named(value) if names_a_host(name) and name != "uri" else []
        if name == "adls.connection-string":
            found = re.findall(r"(?i)[a-z]*endpoint=([^;]*)", value)
            hosts = [host for url in found for host in hosts_named(url)]
        for host in hosts:
            policy.check_host(host, f"{key}.{name}")
        keys = OWN_KEYS.get(name.partition(".")[0])
        if keys and hosts and not any(properties.get(own) for own in keys):
            policy.check_ambient(hosts, f"{key}.{name}")


def check_written(metadata: Any, catalog: str | Mapping[str, str], key: str = "output.export") -> None:
    """Raise ConnectorError unless an export to a table writes below the place of its catalog.

    Parameters
    ----------
    metadata : the table's metadata, which others may write: location and properties.
    catalog : name of a catalog that the operator defined, which may state any place; or properties, for which
        a local table lies below ``warehouse``, and any table in a place that the policy lists.
    key : of the recipe, for the message.
    """
    location, bare = metadata.location, _bare(metadata.location)
    current_policy().check_uri(location, key)
    check_hosts(metadata.properties, f"{key}: the metadata of the table")
    for name in PLACES:
        value = metadata.properties.get(name)
        if value and not _is_below(_bare(value), bare):
            raise ConnectorError(
                f"{key}: the metadata of the table state {name} = {value}, which is not below its location "
                f"{location}. They may be forged to write elsewhere. Remove the property from the table."
            )
    if isinstance(catalog, str):
        return
    current_policy().check_place(bare, f"{key}.catalog: the location of the table")
    if "://" in bare:
        return
    warehouse = catalog.get("warehouse", "")
    if not warehouse or not _is_below(os.path.realpath(bare), os.path.realpath(_bare(warehouse))):
        raise ConnectorError(
            f"{key}.catalog: the table lies in {location}, which is not below the warehouse that the "
            f"properties of the catalog name ({warehouse or 'none'}). Name the folder in warehouse; or, if "
            f"you trust the catalog, define it in .pyiceberg.yaml and write its name instead."
        )


def _is_below(bare: str, folder: str) -> bool:
    """Return whether a location is a folder's or lies below it; both as ``_bare`` returns them."""
    return (bare + "/").startswith(folder + "/") and ".." not in unquote(bare).split("/")


def _check_url(policy: SourcePolicy, value: str, key: str) -> None:
    """Check each URL of a list; ``postgresql+psycopg2://`` is checked as ``postgresql://``."""
    for url in value.split(",") if not value.startswith("postgresql") else [value]:
        scheme, mark, rest = url.strip().partition("://")
        if scheme.startswith("postgres"):
            check_database(url, key)
        policy.check_uri(f"{scheme.partition('+')[0] if scheme != 'thrift' else 'https'}{mark}{rest}", key)


def check_metadata_files(where: str) -> None:
    """Raise ConnectorError where a link, or the hint, leads to metadata files outside of the table."""
    folder = _bare(_folder_of_table(where))
    if "://" not in folder and not current_policy().outside_links and os.path.isdir(folder):
        metadata = os.path.join(folder, "metadata")
        if os.path.isdir(metadata):
            check_links(folder, below="metadata", hidden=True)
    if where.endswith(".metadata.json"):
        return
    hint = f"{where.rstrip('/')}/metadata/version-hint.text"
    filesystem, path = resolve(hint)
    with reading(hint), filesystem.open_input_stream(path) as stream:
        name = stream.read(MAX_HINT_BYTES).decode("utf-8", "replace")
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
        raise ConnectorError(
            f"source.path: {hint} holds {name!r}, which is neither a number nor the name of a metadata file. "
            f"It may be forged to read other files. Name the table's .metadata.json file in source.path."
        )


def check_location(where: str, stated: str) -> None:
    """Raise ConnectorError unless the location that a metadata file states is the table's own folder."""
    folder = _folder_of_table(where)
    if _bare(stated) != _bare(folder):
        raise ConnectorError(
            f"source.path: the metadata of {where} state the location {stated}, not {folder}. Its files may "
            f"lie anywhere. Open the table where it was written, or through its catalog."
        )


def check_file(table: Any, path: str) -> None:
    """Raise ConnectorError unless a file that the table's metadata name lies below its location."""
    folder = table.metadata.location
    policy, bare = current_policy(), _bare(path)
    policy.check_uri(path)
    inside = bare.startswith(_bare(folder) + "/") and ".." not in unquote(path).split("/")
    if inside and "://" not in bare and not policy.outside_links:
        check_regular(_bare(folder), bare)
    if not inside:
        raise ConnectorError(
            f"source.path: the metadata of the table name the file {path}, which is not below {folder}. "
            f"Metadata may be forged to read other files. Rewrite the table's data files into its folder."
        )


def _folder_of_table(where: str) -> str:
    """Return the folder of a table that is named by itself or by one of its metadata files."""
    return where.rsplit("/metadata/", 1)[0] if where.endswith(".metadata.json") else where


def _bare(location: str) -> str:
    """Return a location without ``file://`` and a final slash; links of a local path are followed.

    Raises ConnectorError for what is not a path.
    """
    check_plain(location)
    bare = location.removeprefix("file://").removeprefix("file:").rstrip("/")
    return (
        bare
        if "://" in bare
        else os.path.join(os.path.realpath(os.path.dirname(bare)), os.path.basename(bare))
    )


class _GuardedImports:
    """Stands for ``importlib`` in the modules of pyiceberg that import what a property names.

    Properties come from the recipe, from a REST catalog's answers and from a table's metadata file. The
    catalogs and file systems of pyiceberg itself may be imported; others only if the administrator allows
    them.
    """

    def import_module(self, name: str) -> Any:
        if name not in OWN_MODULES:
            current_policy().check_module(
                f"{name}.", "source.options.catalog: a property of the catalog or table"
            )
        return import_module(name)


_GUARD = _GuardedImports()


def guard_imports() -> None:
    """Let pyiceberg import only modules that the policy allows, and read metadata within bounds.

    Raises ConnectorError where this version of pyiceberg cannot be guarded.
    """
    library("pyiceberg.catalog", "iceberg")
    from connectors.tables.guarded_http import (
        GuardedRequests,
        GuardedSession,
    )  # needs requests, which pyiceberg brings
    from connectors.tables.iceberg_bounds import bound_readers

    for name in IMPORTING_MODULES:
        module = library(name, "iceberg")
        if not hasattr(module, "importlib"):
            raise ConnectorError(
                f"This version of pyiceberg imports modules in another way than Rowsieve can guard ({name}). "
                f"Install the version that deploy/constraints.txt names."
            )
        module.importlib = _GUARD
    library("pyiceberg.catalog.rest", "iceberg").Session = GuardedSession
    for name in ASKING_MODULES:
        library(name, "iceberg").requests = GuardedRequests
    bound_readers()
