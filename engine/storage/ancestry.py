"""Which versions of an output a version continues from, and which continue from it.

A version continues from its base if it keeps what operators have learnt or placed there. The search goes on
at a base that was removed, as its record says what it continued from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.storage import Place
from engine.core.output_layout import version_folder
from engine.storage.manifest import NUMBER, is_published, published_versions, read_manifest
from engine.storage.removals import kept_base, removal_of


class Ancestry:
    """The bases of an output's versions. Each manifest and each record of a removal is read once."""

    def __init__(self, output: Place) -> None:
        self._output = output
        self._bases: dict[str, str | None] = {}
        self._numbers: dict[str, int] = {}

    def bases(self, manifest: Mapping[str, Any]) -> list[str]:
        """Return the versions that a manifest's version continues from, the nearest first."""
        found: dict[str, None] = {}
        base = kept_base(manifest)
        while base is not None and base not in found:
            found[base] = None
            base = self._base_of(base)
        return list(found)

    def versions_on(self, version: str) -> list[str]:
        """Return the published versions that continue from a version, the latest publication first."""
        names = published_versions(self._output)
        waiting = list(names)
        continued: dict[str, list[str]] = {}
        seen = set(waiting)
        while waiting:
            name = waiting.pop()
            base = self._base_of(name)
            if base is not None:
                continued.setdefault(base, []).append(name)
            if base is not None and base not in seen:  # it was removed
                seen.add(base)
                waiting.append(base)
        found: set[str] = set()
        following = [version]
        while following:
            fresh = set(continued.get(following.pop(), ())) - found
            found |= fresh
            following += fresh
        on = [name for name in names if name in found and name != version]
        return sorted(on, key=lambda name: (-self._numbers[name], name))

    def _base_of(self, name: str) -> str | None:
        """Return the version that a published or removed version continues from."""
        if name not in self._bases:
            if is_published(self._output, name):
                manifest = read_manifest(version_folder(self._output, name))
                self._bases[name] = kept_base(manifest)
                self._numbers[name] = int(manifest.get(NUMBER, 0))
            else:
                removed = removal_of(self._output, name)
                self._bases[name] = removed.base if removed else None
        return self._bases[name]
