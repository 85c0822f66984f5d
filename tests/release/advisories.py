"""Known advisories from files, for machines that reach no index: ``make audit ARGS="--advisories FILE"``.

Two forms are read. Records of OSV (https://ossf.github.io/osv-schema/), one JSON file each, in a folder or a
zip; https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip holds those for Python packages. And
tables of one JSON file, as scanners carry them: package -> records with ``v``, the affected versions.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from tests.release.hashes import normal


@dataclass(frozen=True)
class Advisory:
    """One advisory for one package.

    ``affected`` holds specifiers, any of which may match, ``versions`` single versions beside them. Old
    tables have specifiers of forms that no version has today; one that cannot be read counts as a match.
    """

    identifier: str
    package: str
    affected: tuple[str, ...] = ()
    versions: frozenset[str] = frozenset()
    fixed: tuple[str, ...] = ()

    def affects(self, version: str) -> bool:
        return version in self.versions or any(_matches(one, version) for one in self.affected)


def _matches(specifier: str, version: str) -> bool:
    """Compare as advisories mean it: 1.5rc1 lies below 1.5, which a requirement `<1.5` excludes."""
    try:
        clauses = [*SpecifierSet(specifier)]
    except InvalidSpecifier:
        return True
    given = Version(version)
    return all(
        given < Version(one.version)
        if one.operator == "<"
        else given > Version(one.version)
        if one.operator == ">"
        else one.contains(version, prereleases=True)
        for one in clauses
    )


@dataclass
class Advisories:
    """Advisories by the normalised name of their package; ``newest`` is when the last of them changed."""

    by_package: dict[str, list[Advisory]] = field(default_factory=dict)
    newest: datetime | None = None

    def __len__(self) -> int:
        return sum(map(len, self.by_package.values()))

    def add(self, advisory: Advisory) -> None:
        self.by_package.setdefault(advisory.package, []).append(advisory)

    def found(self, pins: Mapping[str, str]) -> list[tuple[str, Advisory]]:
        """Return the package and the advisory of each that affects a pinned version."""
        return [
            (name, advisory)
            for name, version in pins.items()
            for advisory in self.by_package.get(name, ())
            if advisory.affects(version)
        ]


def read_advisories(path: Path) -> Advisories:
    """Read a folder, a zip or a file. Raises ValueError, which names the file, for what is no advisory."""
    known = Advisories()
    for name, text in _texts(path):
        try:
            content = json.loads(text)
            dates = _add_record(known, content) if "affected" in content else _add_table(known, content)
        except (KeyError, TypeError, ValueError, AttributeError, InvalidVersion) as error:
            raise ValueError(
                f"{name}: neither a record of OSV nor a table of advisories ({error!r})"
            ) from None
        known.newest = max(filter(None, (known.newest, *dates)), default=None)
    if not known.by_package:
        raise ValueError(f"{path}: holds no advisory of a Python package (*.json, or a zip of them)")
    return known


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and content of each JSON file."""
    if path.is_dir():
        for file in sorted(path.rglob("*.json")):
            yield str(file), file.read_text()
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in sorted(name for name in archive.namelist() if name.endswith(".json")):
                yield f"{path}:{name}", archive.read(name).decode()
    else:
        yield str(path), path.read_text()


def _add_record(known: Advisories, record: dict[str, Any]) -> list[datetime]:
    """Add a record of OSV for each package of PyPI that it names; return when it was changed."""
    if record.get("withdrawn"):
        return []
    for one in record["affected"]:
        if one["package"]["ecosystem"] != "PyPI":
            continue
        spans = [
            span
            for found in one.get("ranges", ())
            if found["type"] == "ECOSYSTEM"
            for span in _spans(found["events"])
        ]
        known.add(
            Advisory(
                record["id"],
                normal(one["package"]["name"]),
                tuple(spans),
                frozenset(one.get("versions", ())),
                _fixes(one.get("ranges", ())),
            )
        )
    return [_date(record["modified"])]


def _spans(events: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the affected versions of a range as specifiers: from each ``introduced`` to what ends it."""
    spans: list[str] = []
    order = sorted(events, key=lambda event: Version(next(iter(event.values()))))
    for event in order:
        if "introduced" in event:
            spans.append(f">={event['introduced']}")
        elif spans and "fixed" in event:
            spans[-1] += f",<{event['fixed']}"
        elif spans and "last_affected" in event:
            spans[-1] += f",<={event['last_affected']}"
    return spans


def _fixes(ranges: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    events = [event for found in ranges if found["type"] == "ECOSYSTEM" for event in found["events"]]
    return tuple(event["fixed"] for event in events if "fixed" in event)


def _add_table(known: Advisories, table: dict[str, Any]) -> list[datetime]:
    """Add a table of names and records; return the date that its ``$meta`` may state."""
    about = table.get("$meta", {})
    for name, records in table.items():
        if name == "$meta":
            continue
        for record in records:
            specifiers = record.get("specs") or [record["v"]]
            fixed = record.get("fixed_in")
            known.add(
                Advisory(
                    str(record["id"]),
                    normal(name),
                    tuple(specifiers),
                    fixed=(str(fixed),) if fixed else (),
                )
            )
    return [datetime.fromtimestamp(about["timestamp"], UTC)] if "timestamp" in about else []


def _date(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
