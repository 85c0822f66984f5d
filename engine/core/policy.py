"""The operator's policy: what an untrusted recipe may reach. Recipes and stored files cannot change it.

Whoever starts runs sets it, by environment variables or by a TOML file that ``ROWSIEVE_POLICY`` names:

    schemes = ["file", "s3"]
    hosts = ["db.internal", "*.example.org"]
    factories = ["ourmodels"]
    environment_names = ["SHOP_PASSWORD"]
    addresses = ["ray://head:10001"]

A key of the file replaces its variable, so that the file is the only place to look. Packages below the engine
read the variables, which ``apply_policy`` sets from the file.
"""

from __future__ import annotations

import fnmatch
import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engine.core.errors import InputError
from engine.core.suggestions import nearest

FILE = "ROWSIEVE_POLICY"
VARIABLES = {
    "schemes": "ROWSIEVE_SCHEMES",
    "hosts": "ROWSIEVE_HOSTS",
    "factories": "ROWSIEVE_FACTORIES",
    "environment_names": "ROWSIEVE_ENVIRONMENT_NAMES",
    "addresses": "ROWSIEVE_ADDRESSES",
}
"""Key of the policy -> environment variable with the same list, separated by commas."""
MAX_BYTES = 2**20


@dataclass(frozen=True)
class Policy:
    """Lists of what recipes may use. ``schemes`` and ``hosts`` are None where there is no restriction."""

    schemes: tuple[str, ...] | None = None
    """Schemes of URIs under ``path``; ``file`` stands for local paths."""
    hosts: tuple[str, ...] | None = None
    """Hosts and buckets in URIs under ``path``; shell patterns."""
    factories: tuple[str, ...] = ()
    """Modules that ``package.module:factory`` may name."""
    environment_names: tuple[str, ...] = ()
    """Environment variables that ``${NAME}`` may stand for in a database URL."""
    addresses: tuple[str, ...] = ()
    """Ray clusters that ``run.address`` may name in a recipe."""

    def check_path(self, key: str, path: str) -> None:
        """Raise InputError where a path of a recipe has a scheme or a host that is not listed."""
        scheme, mark, _ = path.partition("://")
        scheme = scheme.lower() if mark else "file"
        if self.schemes is not None and scheme not in self.schemes:
            raise InputError(
                f"{key}: the scheme {scheme!r} is not allowed on this installation; allowed are: "
                f"{', '.join(self.schemes) or 'none'}. Its operator can add it to {VARIABLES['schemes']}, or "
                f"to schemes in the file that {FILE} names."
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
                f"{', '.join(self.hosts) or 'none'}. Its operator can add it to {VARIABLES['hosts']}, or to "
                f"hosts in the file that {FILE} names."
            )

    def check_address(self, place: str, address: str) -> None:
        """Raise InputError where a recipe itself names a Ray cluster that is not listed."""
        if address not in self.addresses:
            raise InputError(
                f"{place}: run.address: a recipe may not choose the Ray cluster, since that gets the "
                f"token and runs code here. Remove the key and set RAY_ADDRESS, or give --set run.address "
                f"on the command line; the operator can allow the address in {VARIABLES['addresses']}."
            )


def current_policy() -> Policy:
    """Return the policy of this process. Raises InputError for a file that cannot be read or has a fault."""
    given: dict[str, tuple[str, ...]] = {}
    for key, variable in VARIABLES.items():
        if variable in os.environ:
            given[key] = tuple(entry.strip() for entry in os.environ[variable].split(",") if entry.strip())
    return Policy(**(given | _from_file(os.environ.get(FILE, ""))))


def policy_source(key: str) -> str:
    """Return where a key's list comes from: the file, its variable, or ``default``."""
    path = os.environ.get(FILE, "")
    if key in _from_file(path):
        return path
    return VARIABLES[key] if VARIABLES[key] in os.environ else "default"


def apply_policy() -> Policy:
    """Set the environment variables from the policy file, for the packages below the engine; return it."""
    for key, entries in _from_file(os.environ.get(FILE, "")).items():
        os.environ[VARIABLES[key]] = ",".join(entries)
    return current_policy()


def _from_file(path: str) -> dict[str, tuple[str, ...]]:
    if not path:
        return {}
    place = f"{FILE}={path}"
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            raise InputError(f"{place}: the file is larger than {MAX_BYTES >> 20} MiB.")
        found: dict[str, Any] = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{place}: the file cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{place}: this is not valid TOML: {error}.") from None
    known = [field.name for field in fields(Policy)]
    for key, entries in found.items():
        if key not in known:
            hint = nearest(key, known) or f" Known keys: {', '.join(known)}."
            raise InputError(f"{place}: {key}: unknown key.{hint}")
        if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
            raise InputError(
                f"{place}: {key}: give a list of texts without commas, such as {key} = ['a', 'b']."
            )
    return {key: tuple(entries) for key, entries in found.items()}


def _is_entry(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "," not in value
