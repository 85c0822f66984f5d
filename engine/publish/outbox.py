"""Files that wait in an output until a server has them: the rule of the outboxes for MLflow and OpenLineage.

- One record is one file ``<name>.json``. It is removed when the server has the record.
- A record that the server refuses for what it says is set aside as ``<name>.refused.json``, so that those
  after it get through. Renamed to ``<name>.json``, it is delivered again.
- No lock is taken. Two processes may deliver a record twice, which changes nothing on the server.
- An output may be shared, so a file whose name does not have the form of the outbox is left alone. What is in
  it is checked by whoever delivers it.

MLflow's records are delivered by a process (:mod:`engine.publish.record_delivery`), since importing MLflow
holds Python's lock for seconds; OpenLineage's events by a thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from connectors.storage import Place, remove_file
from engine.core.json_files import read_json, write_json


@dataclass(frozen=True)
class Outbox:
    """The files of one kind of records that wait in an output."""

    output: Place
    folder: Place
    names: re.Pattern[str]
    """Form of the names of waiting files, with ``.json``."""
    durable: bool = True
    """Whether a file is on the disk when :meth:`keep` returns, so that it survives a loss of power."""

    def keep(self, name: str, values: Mapping[str, Any]) -> Place:
        """Write a record, or its new state; return the file."""
        place = self.folder / f"{name}.json"
        write_json(place, values, durable=self.durable, root=self.output)
        return place

    def waiting(self) -> list[Place]:
        """Return the files of the records that wait, by name."""
        found: list[Place] = list(self.folder.glob("*.json"))
        return sorted((place for place in found if self.names.fullmatch(place.name)), key=lambda p: p.name)

    def read(self, place: Place) -> Any:
        """Return the content of a file. Raises OSError or ValueError if it is gone or holds no JSON."""
        return read_json(place, root=self.output)

    def forget(self, name: str) -> None:
        """Remove a record that the server has, and the same record where it was set aside before."""
        remove_file(self.folder / f"{name}.json", root=self.output)
        remove_file(self.refused(name), root=self.output)

    def refused(self, name: str) -> Place:
        """Return the file that holds a record which the server refuses."""
        return self.folder / f"{name}.refused.json"

    def set_aside(self, name: str, values: Mapping[str, Any]) -> Place:
        """Keep a refused record where no delivery finds it; return the file."""
        aside = self.refused(name)
        write_json(aside, values, durable=self.durable, root=self.output)
        remove_file(self.folder / f"{name}.json", root=self.output)
        return aside
