"""Checks events of OpenLineage against its published JSON schemas, which a checkout of its repository holds.

The variable ``ROWSIEVE_OPENLINEAGE_SPEC`` names the folder `spec` of a checkout of OpenLineage/OpenLineage.
No package of PyPI or npm has the schemas, and they are not copied into this repository.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import best_match
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

VARIABLE = "ROWSIEVE_OPENLINEAGE_SPEC"
EVENT = "https://openlineage.io/spec/OpenLineage.json"
HOLDERS = ("facets", "inputFacets", "outputFacets")
# jsonschema checks these two formats only with packages that are not among our dependencies.
FORMATS = FormatChecker(("uuid",))
DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
URI = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")


@FORMATS.checks("date-time", raises=ValueError)
def _is_date_time(value: object) -> bool:
    """Return whether a text is a time of RFC 3339."""
    if not isinstance(value, str):
        return True
    return bool(DATE_TIME.fullmatch(value) and datetime.fromisoformat(value))


@FORMATS.checks("uri", raises=ValueError)
def _is_uri(value: object) -> bool:
    """Return whether a text is an absolute URI of RFC 3986's characters."""
    return not isinstance(value, str) or bool(URI.fullmatch(value) and urlsplit(value).scheme)


class PublishedSchemas:
    """The schemas in a folder `spec`. References between them are resolved in it, by the files' names.

    A reference that names another version than the file's takes the file. :attr:`notes` lists such events and
    facets, and the facets that the folder has no schema of: the event's schema alone has checked those.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.notes = folder, set[str]()
        self._registry = Registry(retrieve=self._retrieve)

    def faults(self, event: dict[str, Any]) -> list[str]:
        """Return what is wrong with a run event, or else with its facets; empty if nothing is."""
        self._note_version(str(event.get("schemaURL", "")))
        found = [*self._faults(event, f"{EVENT}#/$defs/RunEvent", "$"), *self._faults(event, EVENT, "$")]
        if found:
            return found
        return [
            fault for place, key, facet in _facets(event) for fault in self._facet_faults(facet, key, place)
        ]

    def _facet_faults(self, facet: dict[str, Any], key: str, place: str) -> list[str]:
        url = facet["_schemaURL"]
        if not self._file(url).exists():
            self.notes.add(f"{self._folder} has no schema {self._file(url).name} of {key}")
            return []
        self._note_version(url)
        if key not in self._retrieve(url).contents["properties"]:
            return [f"{place}: {url} describes no facet {key!r}"]
        return self._faults(facet, url, place)

    def _faults(self, value: Any, url: str, place: str) -> list[str]:
        validator = Draft202012Validator({"$ref": url}, registry=self._registry, format_checker=FORMATS)
        try:
            error = best_match(validator.iter_errors(value))
        except Unresolvable as missing:
            return [f"{place}: {missing}"]
        return [] if error is None else [f"{place}{error.json_path.removeprefix('$')}: {error.message}"]

    def _note_version(self, url: str) -> None:
        named = url.partition("#")[0]
        if named and self._file(named).exists():
            version = self._retrieve(named).contents["$id"]
            if version != named:
                self.notes.add(f"{self._folder} has {version} for {named}")

    def _retrieve(self, url: str) -> Resource[Any]:
        return Resource.from_contents(
            json.loads(self._file(url).read_text()), default_specification=DRAFT202012
        )

    def _file(self, url: str) -> Path:
        name = url.partition("#")[0].rpartition("/")[2]
        return self._folder / name if name == "OpenLineage.json" else self._folder / "facets" / name


def _facets(event: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the place, the key and the content of every facet of a valid event."""
    holders = {f"$.{name}": event[name] for name in ("run", "job")}
    for name in ("inputs", "outputs"):
        holders |= {f"$.{name}[{index}]": one for index, one in enumerate(event.get(name, ()))}
    for place, holder in holders.items():
        for kind in HOLDERS:
            for key, facet in holder.get(kind, {}).items():
                yield f"{place}.{kind}.{key}", key, facet


def check_received(events: Iterable[dict[str, Any]]) -> None:
    """Check events against the schemas in the folder of the variable, if it is set.

    Raises AssertionError with the places at fault. What the folder lacks is a warning.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    schemas = PublishedSchemas(Path(folder))
    faults = [fault for event in events for fault in schemas.faults(event)]
    for note in sorted(schemas.notes):
        warnings.warn(note, stacklevel=2)
    assert not faults, "\n".join(faults)
