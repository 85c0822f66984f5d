"""Refuses recipes whose values are secrets: manifests are readable to many, and kept in repositories."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from connectors.errors import redact_uris
from engine.core.errors import InputError
from engine.core.redaction import is_secret
from engine.jobs.kubernetes.options import Options
from engine.recipe.recipe import Recipe

_PLACEHOLDER = re.compile(r"\$\{\w+\}")
_USERS_THAT_ARE_TOKENS = ("http", "https")


def check_no_secrets(recipe: Recipe, options: Options) -> None:
    """Raise InputError, which names the key, if a manifest would hold a password or a key."""
    values = dict(_texts(recipe.model_dump(exclude_unset=True)))
    values |= {"--mlflow": options.mlflow or "", "--submit-to": options.address or ""}
    for key, text in values.items():
        in_catalog = ".catalog." in f".{key}" and is_secret(key.rpartition(".catalog.")[2])
        if not (holds_secret(text) or (in_catalog and _PLACEHOLDER.sub("", text))):
            continue
        raise InputError(
            f"{key}: this value holds a password or a key, and the manifest would show it to everyone who "
            f"may read ConfigMaps and jobs. Put it into the secret {options.credentials!r}, whose keys "
            f"become environment variables of the pods: kubectl create secret generic {options.credentials} "
            f"--from-literal=AWS_SECRET_ACCESS_KEY=... In the URL of a database write ${{NAME}}."
        )


def holds_secret(text: str) -> bool:
    """Return whether a text has a URI with a password, or a setting that is secret.

    A user name is not one, except in a web address, where it may be a token. ``${NAME}`` is a variable.
    """
    bare = _PLACEHOLDER.sub("", text)
    if redact_uris(bare) == bare:
        return False
    scheme, mark, rest = bare.partition("://")
    user, at, after = rest.rpartition("@")
    if not mark or redact_uris(f"{scheme}://{after or rest}") != f"{scheme}://{after or rest}":
        return True  # a secret setting
    name, _, password = user.partition(":")
    return bool(at) and bool(password or (name and scheme in _USERS_THAT_ARE_TOKENS))


def _texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of a nested value with their dotted keys."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _texts(entry, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            yield from _texts(entry, f"{place}.{index}")
