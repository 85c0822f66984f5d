"""Fits on a cluster whose hosts share no disk: the folder of a fit is carried along with its work.

Operators write a state as files of one folder, from the driver and from their tasks. Where the output is an
object store there is no folder that all hosts see. Each host keeps its own under the same path: before a task
it gets what others have put, after it puts what it has changed. Tasks of one pass write different files, as
they do on a shared disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from connectors.storage import ObjectPath, Tag, write_whole
from engine.storage.folder_copies import Stamps, fetch, put, stamps
from operators.base import Executor, Resources

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Mirror:
    """A folder of this host, and the prefix at which the hosts meet. Picklable."""

    folder: Path
    meeting: ObjectPath

    def pull(self) -> Stamps:
        """Get what others have changed; return what the folder holds then."""
        self.folder.mkdir(parents=True, exist_ok=True)
        there, known = self.meeting.tags_below(), self._known()
        fetch(self.meeting, [name for name, tag in there.items() if known.get(name) != tag], self.folder)
        for name in known.keys() - there.keys():
            (self.folder / name).unlink(missing_ok=True)
        self._remember(there)
        return stamps(self.folder)

    def push(self, before: Stamps) -> None:
        """Put what has changed since, and remove what is gone."""
        after = stamps(self.folder)
        changed = [name for name, stamp in after.items() if before.get(name) != stamp]
        self._remember(self._known() | put(self.folder, changed, self.meeting))
        for name in before.keys() - after.keys():
            (self.meeting / name).unlink(missing_ok=True)

    def forget(self) -> None:
        """The folder is another one than before: what this host had is not there any more."""
        self._index.unlink(missing_ok=True)

    @property
    def _index(self) -> Path:
        """Which contents this host has; one that is lost or late costs another copy."""
        return self.folder.with_name(f"{self.folder.name}.json")

    def _known(self) -> dict[str, Tag]:
        try:
            return {name: Tag(*tag) for name, tag in json.loads(self._index.read_text("utf-8")).items()}
        except FileNotFoundError:
            return {}

    def _remember(self, tags: dict[str, Tag]) -> None:
        write_whole(self._index, json.dumps(tags).encode())


class Carrying:
    """See ``operators.base.Executor``; for one folder.

    Of kind "local": what operators start by themselves, Ray Train's workers, would need a folder that all
    hosts see.
    """

    kind: Literal["local", "ray"] = "local"

    def __init__(self, executor: Executor, mirror: Mirror, bring: Callable[[], None] | None = None) -> None:
        """``bring`` gets what else a task reads to its host; picklable."""
        self._executor, self._mirror, self._bring = executor, mirror, bring
        self._before: Stamps = {}

    def map(
        self, fn: Callable[[T], R], items: Sequence[T], *, resources: Resources | None = None
    ) -> Iterator[R]:
        """The same results in the same order; the driver sees the files of a task once it has its result."""
        self._mirror.push(self._before)
        there = partial(_on_any_host, fn, self._bring, self._mirror)
        for result in self._executor.map(there, items, resources=resources or Resources()):
            self._before = self._mirror.pull()
            yield result
        self._before = self._mirror.pull()


def several_hosts() -> bool:
    """Whether the cluster that this process has joined has several nodes."""
    import ray

    return sum(bool(node["Alive"]) for node in ray.nodes()) > 1


def _on_any_host(fn: Callable[[T], R], bring: Callable[[], None] | None, mirror: Mirror, item: T) -> R:
    if bring:
        bring()
    before = mirror.pull()
    result = fn(item)
    mirror.push(before)
    return result
