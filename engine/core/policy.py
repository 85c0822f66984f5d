"""The administrator's policy: the limits of untrusted recipes. Recipes and stored files cannot change it.

Whoever starts runs sets it, by environment variables or by a TOML file that ``ROWSIEVE_POLICY`` names:

    schemes = ["file", "s3"]
    hosts = ["db.internal", "*.example.org"]
    factories = ["ourmodels"]
    environment_names = ["SHOP_PASSWORD"]
    profiles = ["curation"]
    addresses = ["head:6379"]
    outputs = ["s3://curated/team-a/*"]
    max_rows = 1_000_000_000
    max_bytes = 10_000_000_000_000
    max_json_depth = 100
    max_seconds = 86_400
    max_operator_seconds = 14_400
    max_operator_bytes = 8_589_934_592
    max_model_bytes = 2_147_483_648
    max_model_files = 10_000
    strict = true

A key of the file replaces its variable. Packages below the engine read the variables, which ``apply_policy``
sets from the file.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import tomllib
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from connectors.foundation.messages import nearest
from connectors.locations import plain_place
from connectors.policy import (
    JSON_DEPTH,
    MAX_JSON_DEPTH,
    SCHEMES,
    STRICT_BYTES,
    STRICT_SCHEMES,
)
from engine.core.errors import InputError
from engine.core.redaction import redact

FILE = "ROWSIEVE_POLICY"
VARIABLES = {
    "schemes": "ROWSIEVE_SCHEMES",
    "hosts": "ROWSIEVE_HOSTS",
    "factories": "ROWSIEVE_FACTORIES",
    "environment_names": "ROWSIEVE_ENVIRONMENT_NAMES",
    "profiles": "ROWSIEVE_PROFILES",
    "addresses": "ROWSIEVE_ADDRESSES",
    "outputs": "ROWSIEVE_OUTPUTS",
    "max_rows": "ROWSIEVE_MAX_ROWS",
    "max_bytes": "ROWSIEVE_MAX_BYTES",
    "max_json_depth": "ROWSIEVE_MAX_JSON_DEPTH",
    "max_seconds": "ROWSIEVE_MAX_SECONDS",
    "max_operator_seconds": "ROWSIEVE_MAX_OPERATOR_SECONDS",
    "max_operator_bytes": "ROWSIEVE_MAX_OPERATOR_BYTES",
    "max_model_bytes": "ROWSIEVE_MAX_MODEL_BYTES",
    "max_model_files": "ROWSIEVE_MAX_MODEL_FILES",
    "strict": "ROWSIEVE_STRICT",
}
"""Key of the policy -> environment variable with the same value; lists are separated by commas."""
NUMBERS = tuple(key for key in VARIABLES if key.startswith("max_"))
STRICT = {"max_rows": 10**9, "max_bytes": STRICT_BYTES, "max_seconds": 7 * 24 * 3600}
"""Limits of ``strict`` for the keys that the administrator does not set."""
MAX_BYTES = 2**20


@dataclass(frozen=True)
class Policy:
    """Limits of what recipes may use. None: no limit in addition to those of the connectors."""

    schemes: tuple[str, ...] | None = None
    """Schemes of URIs under ``path``; ``file`` stands for local paths. None: those that connectors open."""
    hosts: tuple[str, ...] | None = None
    """Hosts and buckets in URIs under ``path``; shell patterns."""
    factories: tuple[str, ...] = ()
    """Modules that ``package.module:factory`` may name."""
    environment_names: tuple[str, ...] = ()
    """Environment variables that ``${NAME}`` may stand for in a database URL."""
    profiles: tuple[str, ...] = ()
    """Profiles and roles of AWS that the properties of an Iceberg catalog may name."""
    addresses: tuple[str, ...] = ()
    """Ray clusters that ``run.address`` may name in a recipe."""
    outputs: tuple[str, ...] | None = None
    """Places that recipes may write: shell patterns of URIs, of real local paths, and of tables in a catalog
    as ``iceberg:namespace.table``. None: any place that ``schemes`` and ``hosts`` allow."""
    max_rows: int | None = None
    """Rows of a source."""
    max_bytes: int | None = None
    """Bytes of a source's files as they are stored: compressed, where they are."""
    max_json_depth: int = JSON_DEPTH
    """Levels of lists and objects in a row of JSON."""
    max_seconds: int | None = None
    """Time of a run until it has published."""
    max_operator_seconds: int | None = None
    """Time of one operator over all shards."""
    max_operator_bytes: int | None = None
    """Memory that one operator may take in one process, beyond what the process has before."""
    max_model_bytes: int = 2**31
    """Bytes of all files of a model that is read to predict, or as the champion."""
    max_model_files: int = 10_000
    """Number of these files."""
    strict: bool = False
    """Whether the strict defaults hold for absent keys: only schemes of files and object stores, and
    limits of rows, bytes and time. ``rowsieve submit`` and its jobs set it."""

    def check_path(self, key: str, path: str) -> None:
        """Raise InputError if a path of a recipe has a scheme or a host that is not listed."""
        scheme, mark, _ = path.partition("://")
        scheme = scheme.lower() if mark else "file"
        if self.schemes is not None and scheme not in self.schemes:
            raise InputError(
                f"{key}: the scheme {scheme!r} is not allowed on this installation; allowed are: "
                f"{', '.join(self.schemes) or 'none'}. Its administrator can add it to "
                f"{VARIABLES['schemes']}, or to schemes in the file that {FILE} names."
            )
        if self.hosts is None or scheme == "file":
            return
        try:
            host = urlsplit(path).hostname or ""
        except ValueError:
            host = ""
        if not any(fnmatch.fnmatchcase(host, pattern.lower()) for pattern in self.hosts):
            raise InputError(
                f"{key}: the host {host!r} is not allowed on this installation; allowed are: "
                f"{', '.join(self.hosts) or 'none'}. Its administrator can add it to {VARIABLES['hosts']}, "
                f"or to hosts in the file that {FILE} names."
            )

    def check_output(self, key: str, path: str, *, is_table: bool = False) -> None:
        """Raise InputError if a recipe would write to a place that is not listed, or to a catalog's table."""
        if self.outputs is None:
            return
        place = f"iceberg:{path}" if is_table else plain_place(path)
        if place is None or not any(fnmatch.fnmatchcase(place, pattern) for pattern in self.outputs):
            raise InputError(
                f"{key}: {redact(place or path)} cannot be written to on this installation; allowed are: "
                f"{', '.join(self.outputs) or 'none'}. Its administrator can add it to "
                f"{VARIABLES['outputs']}, or to outputs in the file that {FILE} names."
            )

    def check_address(self, place: str, address: str) -> None:
        """Raise InputError if a recipe itself names a Ray cluster that is not listed."""
        if address not in self.addresses:
            raise InputError(
                f"{place}: run.address: a recipe may not choose the Ray cluster, since that gets the "
                f"token and runs code here. Remove the key and set RAY_ADDRESS, or give --set run.address "
                f"on the command line; the administrator can allow the address in {VARIABLES['addresses']}."
            )

    def check_size(self, place: str, rows: int, n_bytes: int) -> None:
        """Raise InputError if a source has more rows or bytes than are allowed."""
        for key, found, most in (("max_rows", rows, self.max_rows), ("max_bytes", n_bytes, self.max_bytes)):
            if most is not None and found > most:
                raise InputError(
                    f"{place}: source.path: the source has {found:,} {key[4:]}, and {most:,} are allowed on "
                    f"this installation. Name less of it; its administrator can raise {VARIABLES[key]}."
                )


def current_policy(*, strict: bool = False) -> Policy:
    """Return the policy of this process; with ``strict`` that is the default if nothing else is said.

    Raises InputError for a value or a file that has a fault.
    """
    given: dict[str, Any] = {"strict": strict}
    for key, variable in VARIABLES.items():
        if variable in os.environ:
            given[key] = _from_text(key, os.environ[variable])
    given |= _from_file(os.environ.get(FILE, ""))
    if given.get("strict"):
        given = {"schemes": tuple(sorted(STRICT_SCHEMES)), **STRICT} | given
    return Policy(**given)


def _from_text(key: str, text: str) -> Any:
    place = VARIABLES[key]
    if key == "strict":
        if text.strip().lower() not in ("", "0", "1", "false", "true"):
            raise InputError(f"{place}={text}: write 1 or 0.")
        return text.strip().lower() in ("1", "true")
    if key in NUMBERS:
        if not text.strip().isascii() or not text.strip().isdigit():
            raise InputError(f"{place}={text}: write a whole number.")
        return _checked_number(place, key, int(text[:20]))
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())


def _checked_number(place: str, key: str, value: int) -> int:
    most = MAX_JSON_DEPTH if key == "max_json_depth" else 10**18
    if not 1 <= value <= most:
        raise InputError(f"{place}: {key}: write a whole number from 1 to {most:,}.")
    return value


def policy_source(key: str) -> str:
    """Return where a key's value comes from: the file, its variable, ``strict``, or ``default``."""
    path = os.environ.get(FILE, "")
    if key in _from_file(path):
        return path
    if VARIABLES[key] in os.environ:
        return VARIABLES[key]
    return "strict" if current_policy().strict and key in {"schemes", *STRICT} else "default"


def effective(policy: Policy) -> dict[str, Any]:
    """Return the limits in force by key, with the connectors' own defaults; None: no limit."""
    schemes = sorted(SCHEMES) if policy.schemes is None else list(policy.schemes)
    lists = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(policy).items()}
    return lists | {"schemes": schemes}


def apply_policy() -> Policy:
    """Set the environment variables from the policy file, for the packages below the engine; return it."""
    for key, value in _from_file(os.environ.get(FILE, "")).items():
        os.environ[VARIABLES[key]] = ",".join(value) if isinstance(value, tuple) else str(int(value))
    return current_policy()


def _from_file(path: str) -> dict[str, Any]:
    if not path:
        return {}
    place = f"{FILE}={path}"
    try:
        found: dict[str, Any] = tomllib.loads(_policy_text(path, place))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{place}: the file cannot be read: {error}. Correct its path or permissions."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{place}: this is not valid TOML: {error}. Correct the line.") from None
    except RecursionError:
        raise InputError(
            f"{place}: this is nested too deeply. Write the keys that SECURITY.md lists."
        ) from None
    known = [field.name for field in fields(Policy)]
    kept: dict[str, Any] = {}
    for key, entries in found.items():
        if key not in known:
            hint = nearest(key, known) or f" Known keys: {', '.join(known)}."
            raise InputError(f"{place}: {key}: unknown key.{hint}")
        if key == "strict" or key in NUMBERS:
            if type(entries) is not (bool if key == "strict" else int):
                wanted = "true or false" if key == "strict" else "a whole number"
                raise InputError(f"{place}: {key}: write {wanted}.")
            kept[key] = entries if key == "strict" else _checked_number(place, key, entries)
            continue
        if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
            raise InputError(
                f"{place}: {key}: give a list of texts without commas, such as {key} = ['a', 'b']."
            )
        kept[key] = tuple(entries)
    return kept


def _policy_text(path: str, place: str) -> str:
    """Return the text of a policy file. Raises InputError for a file that others may change; and OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # not to wait for a pipe's writer
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise InputError(f"{place}: this is not a regular file. Name a policy file.")
    with open(handle, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if mode & stat.S_IWOTH:
        raise InputError(
            f"{place}: every user of this machine may write to the file, and so change what recipes may do. "
            f"Take that right away: chmod o-w {path}"
        )
    if len(content) > MAX_BYTES:
        raise InputError(f"{place}: the file is larger than {MAX_BYTES >> 20} MiB. Name a policy file.")
    return content.decode("utf-8")


def _is_entry(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "," not in value
