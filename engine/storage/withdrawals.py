"""Withdrawn versions: the records in an output, and the version that readers get instead.

A version is withdrawn by one small file, ``withdrawn/<version>.json``; a version that is not withdrawn is
said to stand. From then on readers that ask for the current version get the newest one that stands, even
before ``CURRENT`` is moved; nothing is deleted. The
records are untrusted, as everything in a shared output: one that cannot be read is an error, as the version
may be wrong.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from connectors.foundation.messages import nearest
from connectors.storage import Place, remove_file
from engine.core.errors import InputError
from engine.core.json_files import write_json
from engine.core.output_layout import POINTER, version_folder
from engine.storage.ancestry import Ancestry
from engine.storage.manifest import (
    NAME,
    NUMBER,
    is_published,
    pointed_version,
    published_versions,
    read_manifest,
)
from engine.storage.version_inputs import InputRecord, Inputs, inputs_of
from engine.storage.version_records import VersionRecord, read_version_record

FOLDER = "withdrawn"
MAX_REASON = 2_000
"""Characters of a reason."""
MAX_EARLIER = 20
"""Earlier reasons that a record keeps, the latest ones."""


class Reason(BaseModel):
    """A reason that another one has replaced, and when it was given in seconds since 1970."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    why: Annotated[str, Field(min_length=1, max_length=MAX_REASON)]
    at: float


class Withdrawal(VersionRecord):
    """Reason and time of a withdrawal (``at``, in seconds since 1970), and whether the version was current.

    ``successor`` is the version that readers got in its place then. ``earlier`` are reasons that were given
    before, the latest last. By ``data``, the version's rows and recipe, a run is found that would publish the
    same under another name. ``method`` says that the operators were wrong and not the data, so that newer
    versions of them may publish the rows again. ``inputs`` is the
    :attr:`~engine.storage.version_inputs.Inputs.exact` that earlier releases wrote in place of ``data``.
    """

    why: Annotated[str, Field(min_length=1, max_length=MAX_REASON)]
    at: float
    was_current: bool
    successor: Annotated[str, Field(pattern=rf"^({NAME.pattern})?$")] = ""
    earlier: Annotated[tuple[Reason, ...], Field(strict=False, max_length=MAX_EARLIER)] = ()
    inputs: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")] = ""
    data: InputRecord | None = None
    method: bool = False


def withdrawal_of(output: Place, version: str) -> Withdrawal | None:
    """Return the withdrawal of a version; None if it stands. Raises InputError for a damaged record."""
    return read_version_record(
        Withdrawal,
        output,
        FOLDER,
        version,
        says="was withdrawn",
        remedy="Withdraw the version again with `rowsieve retract`, or remove the file.",
    )


def current_version(output: Place) -> str | None:
    """Return the version that readers get: the one in ``CURRENT``, or the newest that stands in its place.

    None if nothing is published, or nothing that stands. Raises InputError for an invalid name or record.
    """
    name = pointed_version(output)
    if name is None or withdrawal_of(output, name) is None:
        return name
    return next(iter(standing_versions(output)), None)


def nothing_current(output: Place, place: Place | str = "") -> InputError:
    """Return the error of a reader that asked for the current version of an output that has none.

    ``place`` is what the reader was given, if it is not the output's own place.
    """
    place = place or output
    names = published_versions(output)
    if not names:
        return InputError(
            f"{place} holds no published version: neither manifest.json nor {POINTER} is there. Name the "
            f"output folder of a recipe that has run, such as demo/out, or OUTPUT@VERSION."
            f"{similar_output(place)}"
        )
    latest = max(names, key=lambda name: (publication_number(output, name), name))
    found = withdrawal_of(output, latest)
    why = f"{latest}, was withdrawn: {found.why.rstrip('.')}" if found else latest
    return InputError(
        f"No version of {place} is current: of {len(names)} published versions the latest, {why}. Run a "
        f"changed recipe or changed data, take a withdrawal back with `rowsieve retract {place}@VERSION "
        f"--undo`, or name a version: {place}@{latest}."
    )


def similar_output(place: Place | str) -> str:
    """Return `` Did you mean 'x'?`` for the nearest output beside a local folder, or an empty text."""
    folder = Path(str(place))
    try:
        beside = [str(one) for one in folder.parent.iterdir() if (one / POINTER).is_file()]
        return nearest(str(folder), beside)
    except OSError:  # there is no such parent, or it is on an object store
        return ""


def standing_versions(output: Place) -> list[str]:
    """Return the published versions that are not withdrawn, the latest publication first."""
    standing = [name for name in published_versions(output) if not withdrawal_of(output, name)]
    return sorted(standing, key=lambda name: (-publication_number(output, name), name))


def version_before(output: Place, version: str) -> str:
    """Return the standing version whose publication came last before that of a version.

    Raises InputError if there is none.
    """
    number = publication_number(output, version)
    earlier = (name for name in standing_versions(output) if publication_number(output, name) < number)
    name = next(earlier, None)
    if name is None:
        raise InputError(
            f"{output} holds no version that was published before {version}. Run the recipe on new rows "
            f"first, or name two of the versions that `rowsieve versions {output}` lists."
        )
    return name


def withdrawn_bases(
    output: Place, manifest: Mapping[str, Any], stands: str = "", ancestry: Ancestry | None = None
) -> dict[str, str]:
    """Return the withdrawn versions that a version continues from, the nearest first, with their reasons.

    Parameters
    ----------
    stands
        A version that counts as not withdrawn: its withdrawal is being taken back.
    ancestry
        The output's, where several versions are asked for.
    """
    found: dict[str, str] = {}
    recorded = set(recorded_withdrawals(output)) - {stands}
    for name in (ancestry or Ancestry(output)).bases(manifest) if recorded else ():
        known = withdrawal_of(output, name) if name in recorded else None
        if known is not None:
            found[name] = known.why
    return found


def recorded_withdrawals(output: Place) -> list[str]:
    """Return the sorted names of the versions that have a record, whether they are published or removed."""
    try:
        names = [entry.name for entry in (output / FOLDER).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted(stem for stem in stems if NAME.fullmatch(stem))


@dataclass(frozen=True)
class Refusal:
    """The withdrawal that keeps a run from publishing a version.

    ``upgraded`` names the operators whose method has another version now, with both numbers.
    """

    withdrawal: Withdrawal
    upgraded: tuple[str, ...] = ()


def withdrawal_against(
    output: Place, version: str, inputs: Inputs, replayed: Collection[str] = ()
) -> Refusal | None:
    """Return the withdrawal that keeps a run from publishing a version; None if nothing does.

    It is the withdrawal of the version itself, or that of one with the same rows and recipe: from another
    base, or by newer versions of the operators, the same recipe would publish the rows under another name. A
    version that is published and stands may be made current again, whatever else was withdrawn.

    Parameters
    ----------
    inputs
        The version's rows and recipe.
    replayed
        Fingerprints of operators that run again after a repair: a withdrawn version with one of them is
        another one.

    Raises
    ------
    InputError
        A record is damaged.

    """
    own = withdrawal_of(output, version)
    if own is not None or is_published(output, version):
        return Refusal(own) if own else None
    for name in recorded_withdrawals(output):
        known = withdrawal_of(output, name)
        manifest = read_manifest(version_folder(output, name)) if is_published(output, name) else None
        fingerprints = {entry["fingerprint"] for entry in manifest["operators"]} if manifest else set()
        if known is None or not fingerprints.isdisjoint(replayed):
            continue
        published = inputs_of(manifest) if manifest else None
        if inputs.exact in (known.inputs, published.exact if published else ""):
            return Refusal(known)
        then = known.data or (published.record if published else None)
        if then is None or not inputs.is_same_recipe(then):
            continue
        upgraded = inputs.upgraded_since(then)
        if not (known.method and upgraded):
            return Refusal(known, upgraded)
    return None


def check_publishable(output: Place, version: str, inputs: Inputs, replayed: Collection[str] = ()) -> None:
    """Raise InputError if a run would publish again what was withdrawn; see :func:`withdrawal_against`."""
    refusal = withdrawal_against(output, version, inputs, replayed)
    if refusal is None:
        return
    found = refusal.withdrawal
    there = is_published(output, found.version)
    if found.version == version and there:
        check_stands(output, version)
    place = f"{output}@{found.version}"
    remedy = (
        f"take the withdrawal back: {shlex.join(['rowsieve', 'retract', place, '--undo'])}"
        if there
        else f"remove the record of the removed version: {output / FOLDER / f'{found.version}.json'}"
    )
    newer = ""
    if refusal.upgraded:
        words = shlex.join(["rowsieve", "retract", place, "--why", found.why, "--method"])
        newer = f" Newer are only the methods of {', '.join(refusal.upgraded)}."
        newer += f" If they were wrong, and not the data, say so: {words}." if there else ""
    raise InputError(
        f"The run would publish the data of the version {found.version} again, which was withdrawn: "
        f"{found.why.rstrip('.')}. The rows, the operators and the seed are the same. Nothing is published, "
        f"and readers get what they got before.{newer} Change the data, or the recipe where it was wrong; to "
        f"publish the same on purpose, {remedy}"
    )


def withdrawn_within(output: Place, version: str, inputs: Inputs) -> dict[str, str]:
    """Return the withdrawn versions all of whose rows a version will hold, with their reasons.

    Those whose rows the current version holds as well are left out, and so are versions that were removed.
    A version that is published is not looked at.
    """
    recorded = recorded_withdrawals(output)
    if not recorded or is_published(output, version):
        return {}
    held: frozenset[str] = frozenset()
    with suppress(InputError):  # CURRENT, or what it names, is damaged, which a run mends
        current = current_version(output)
        held = inputs_of(read_manifest(version_folder(output, current))).shards if current else held
    found = {}
    for name in recorded:
        known = withdrawal_of(output, name)
        if known is None or not is_published(output, name):
            continue
        shards = inputs_of(read_manifest(version_folder(output, name))).shards
        if shards <= inputs.shards and not shards <= held:
            found[name] = known.why
    return found


def publication_number(output: Place, version: str) -> int:
    """Return the number of a version's publication; 0 for one of before there were numbers."""
    return int(read_manifest(version_folder(output, version)).get(NUMBER, 0))


def check_stands(output: Place, version: str) -> None:
    """Raise InputError if a version is withdrawn.

    Such a version is not made current or exported, and no model of it becomes champion.
    """
    found = withdrawal_of(output, version)
    if found is not None:
        raise InputError(
            f"The version {version} was withdrawn: {found.why}. Change the recipe or the data, or take the "
            f"withdrawal back: rowsieve retract {output}@{version} --undo."
        )


def checked_reason(why: str) -> str:
    """Return a reason on one line. Raises InputError for an empty or very long one."""
    reason = " ".join(why.split())
    if not 0 < len(reason) <= MAX_REASON:
        raise InputError(f"--why has {len(reason):,} characters. Give a reason of 1 to {MAX_REASON:,}.")
    return reason


def write_withdrawal(output: Place, version: str, why: str, *, method: bool = False) -> Withdrawal:
    """Write the record, before ``CURRENT`` is moved; one that is there already keeps its reason as an earlier
    one. ``method``: the operators were wrong, and not the data. Raises InputError for an empty or very long
    reason.
    """
    reason = checked_reason(why)
    place = output / FOLDER / f"{version}.json"
    was_current = is_current = pointed_version(output) == version
    earlier: tuple[Reason, ...] = ()
    successor = ""
    with suppress(InputError):  # a damaged record is replaced
        known = withdrawal_of(output, version)
        if known is not None and (known.why, known.method) == (reason, method):
            return known
        if known is not None:
            was_current, successor = is_current or known.was_current, known.successor
            before = () if known.why == reason else (Reason(why=known.why, at=known.at),)
            earlier = (*known.earlier, *before)[-MAX_EARLIER:]
        if is_current:
            successor = next((name for name in standing_versions(output) if name != version), "")
    found = Withdrawal(
        version=version,
        why=reason,
        at=time.time(),
        was_current=was_current,
        successor=successor,
        earlier=earlier,
        data=inputs_of(read_manifest(version_folder(output, version))).record,
        method=method,
    )
    write_json(place, found.model_dump(mode="json"), root=output)
    return found


def remove_withdrawal(output: Place, version: str) -> None:
    """Remove the record, so that the version stands again."""
    remove_file(output / FOLDER / f"{version}.json", root=output)
