"""The publisher: joins source columns and sidecars into an immutable version, and moves the pointer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

from connectors.base import ConnectorError
from connectors.storage import Place, make_folder, write_whole
from connectors.view import View
from connectors.wrapper import Wrapper
from engine.core.digests import digest
from engine.core.json_files import read_json, to_json
from engine.core.output_layout import FORMAT, POINTER, version_folder
from engine.core.redaction import redact
from engine.core.software_versions import package_versions
from engine.plan.chain import CONTRACT
from engine.plan.model import Plan
from engine.plan.source_columns import recorded_columns
from engine.publish.croissant import describe_version
from engine.publish.dataset_card import write_card
from engine.publish.parts import DATA, Part, PartJob, ReusablePart, write_part
from engine.storage.ancestry import Ancestry
from engine.storage.lease import Lease
from engine.storage.manifest import NUMBER, next_number, read_manifest
from engine.storage.reader import StoreReader
from engine.storage.withdrawals import withdrawn_bases
from operators.base import ROW_ID, Executor

CARD, CROISSANT = "README.md", "croissant.json"
PartDigests = Mapping[str, Mapping[int, str]]
MAX_UNREAD_FILES = 100
"""Maximum number of files that a manifest names for columns that were not read."""


def publish(plan: Plan, executor: Executor, lease: Lease, digests: PartDigests) -> Iterator[dict[str, Any]]:
    """Write every part, card and description, make the folder visible, and write its manifest last.

    Readers never see a partially written version, since a folder without a manifest is not a version. A part
    that is made from the same bytes as one of the base version is reused from it.

    Parameters
    ----------
    digests
        Fingerprint -> shard -> SHA-256 of the part that the operator has committed.

    Yields
    ------
    The record of each part.

    Raises
    ------
    LockedError
        Another writer has taken over the output's lease.

    """
    final = version_folder(plan.output, plan.version)
    folder = lease.parts_folder(final)
    make_folder(folder / DATA, root=plan.output)
    prefix, everything = plan.recipe.output.prefix, plan.recipe.source.columns is None
    reader, reusable_parts = plan.reader(), _reusable_parts(plan)
    extra = tuple(field.name for field in plan.extra_columns)
    job = PartJob(
        reader=reader,
        schema=plan.published_schema,
        prefix=prefix,
        folder=folder,
        lease=lease,
        all_columns=everything,
        extra=extra,
    )
    wanted = []
    for shard in plan.shards:
        made_from = _made_from(plan, reader, shard.index, digests)
        wanted.append(Part(shard.index, made_from, reusable_parts.get(made_from)))
    parts = []
    for part in executor.map(partial(write_part, job), wanted):
        parts.append(part)
        yield part
    record = build_manifest(plan, parts)
    described = describe_version(record, published=datetime.now(UTC).date().isoformat())
    lease.put_file(folder / CROISSANT, to_json(described).encode())
    bases = withdrawn_bases(plan.output, record)
    lease.put_file(folder / CARD, write_card(record, withdrawn_bases=bases).encode())
    lease.publish(final, to_json(record | {NUMBER: next_number(plan.output)}))


def describe_again(
    output: Place, version: str, withdrawn: str, *, ancestry: Ancestry, stands: str = ""
) -> None:
    """Rewrite a version's card and description, with the reason of its withdrawal if it was withdrawn.

    The card also names withdrawn versions that it continues from, except ``stands``. A version of an earlier
    release, which has neither, gets none.
    """
    folder = version_folder(output, version)
    manifest = read_manifest(folder)
    if not (folder / CARD).exists():
        return
    described = describe_version(manifest, withdrawn=withdrawn, published=_published_on(folder, output))
    write_whole(folder / CROISSANT, to_json(described).encode(), root=output)
    bases = withdrawn_bases(output, manifest, stands, ancestry)
    card = write_card(manifest, withdrawn=withdrawn, withdrawn_bases=bases)
    write_whole(folder / CARD, card.encode(), root=output)


def _published_on(folder: Place, output: Place) -> str:
    """Return the date of publication that a version's description has; empty where it has none."""
    with suppress(OSError, KeyError, TypeError, ValueError, ConnectorError):
        return date.fromisoformat(read_json(folder / CROISSANT, root=output)["datePublished"]).isoformat()
    return ""


def _made_from(plan: Plan, reader: StoreReader, shard: int, digests: PartDigests) -> str:
    """Return a digest of everything that the bytes of a part depend on."""
    source, info = plan.listing.shards[shard], plan.shards[shard]
    published = [field.name for field in (*CONTRACT, *plan.extra_columns) if field.name != ROW_ID]
    read = {reader.columns[name] for name in published} | {*reader.validity_sources}
    return digest(
        [
            [FORMAT, plan.recipe.output.prefix, package_versions()["pyarrow"]],
            [[field.name, str(field.type)] for field in plan.published_schema],
            [redact(source.path), plan.listing.identities[source.path]],
            [source.start, source.stop, source.n_rows, info.first_row],
            sorted(digests[fingerprint][shard] for fingerprint in read),
        ]
    )


def _reusable_parts(plan: Plan) -> dict[str, ReusablePart]:
    """Return the parts of the base version by the digest of their inputs."""
    if plan.increment is None:
        return {}
    base, manifest = version_folder(plan.output, plan.increment.base), plan.increment.manifest
    unread = manifest["source"].get("unread", {})
    return {
        part["made_from"]: ReusablePart(
            base / part["path"], part["bytes"], part["sha256"], tuple(unread.get(shard["path"], ()))
        )
        for part, shard in zip(manifest["parts"], manifest["source"]["shards"], strict=True)
        if "made_from" in part
    }


def make_current(output: Place, version: str, lease: Lease) -> None:
    """Make a published version the current one. Raises LockedError if another writer has taken over."""
    lease.point(output / POINTER, version)


def build_manifest(plan: Plan, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the manifest of a version. It is the same for every run over the same bytes."""
    record = plan.to_dict()
    keys = ("path", "rows", "bytes", "sha256", "made_from")
    published = [{key: part[key] for key in keys} for part in parts]
    return {
        "format": FORMAT,
        "version": plan.version,
        "fingerprint": plan.fingerprint,
        "recipe": plan.recipe.name,
        "seed": plan.recipe.seed,
        "rows": plan.n_rows,
        "content": digest([part["sha256"] for part in published]),
        "parts": published,
        "schema": record["schema"],
        "outputs": plan.outputs,
        "summary": total_summary([part["summary"] for part in parts]),
        "source": {
            "path": redact(plan.recipe.source.path),
            "label": plan.recipe.source.label,
            "features": list(plan.features),
            "files": record["files"],
            "shards": record["shards"],
            "skipped": record["skipped"],
            "on_corrupt": plan.recipe.source.on_corrupt,
            **_cleaning(plan),
            "reading": _reading(plan),
            "columns": recorded_columns(plan),
            **(
                {"holdout": holdout.model_dump(mode="json")}
                if (holdout := plan.recipe.source.holdout)
                else {}
            ),
            **({"unread": unread} if (unread := _unread(plan, parts)) else {}),
        },
        **({"learnt_from": plan.learnt_from} if plan.learnt_from else {}),
        **({"warnings": warnings} if (warnings := plan.warnings()) else {}),
        "operators": [
            {
                key: value
                for key, value in operator.items()
                if key in ("name", "version", "params", "requires", "files", "fingerprint")
            }
            for operator in record["operators"]
        ],
        **({"incremental": record["incremental"]} if plan.increment else {}),
        "packages": package_versions(),
    }


def _reading(plan: Plan) -> dict[str, Any]:
    """Return how the files were read, so that a model can read other files in the same way.

    Options are kept only for text files, which have a ``kind``: options of databases may hold secrets.
    """
    spec, source = plan.recipe.source, plan.source
    while isinstance(source, Wrapper | View):
        source = source.source
    name = getattr(getattr(source, "kind", None), "name", "")
    found: dict[str, Any] = {"format": name}
    if name and spec.options:
        found["options"] = dict(spec.options)
    if spec.encoding != "utf-8":
        found["encoding"] = spec.encoding
    names: dict[str, Any] = {"rename": dict(spec.rename), "flatten": list(spec.flatten)}
    return found | {key: value for key, value in names.items() if value}


def _cleaning(plan: Plan) -> dict[str, Any]:
    """Return how texts were cleaned when they were read, for models that read rows of the same source."""
    spec = plan.recipe.source
    if not (spec.strip or spec.missing):
        return {}
    return {"texts": {"strip": spec.strip, "missing": list(spec.missing)}}


def _unread(plan: Plan, parts: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the columns that are not read, by file, for at most ``MAX_UNREAD_FILES`` files."""
    found: dict[str, set[str]] = {}
    for shard, part in zip(plan.shards, parts, strict=True):
        if part["unread"] and (shard.path in found or len(found) < MAX_UNREAD_FILES):
            found.setdefault(shard.path, set()).update(part["unread"])
    return {redact(path): sorted(names) for path, names in sorted(found.items())}


def total_summary(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up the counts of the parts. The effective sample size is that of the weights of the train rows."""
    counts: dict[str, Counter[str]] = {"groups": Counter(), "splits": Counter()}
    for summary in summaries:
        for key, counter in counts.items():
            counter.update(summary[key])
    weight, square = (sum(s[key] for s in summaries) for key in ("weight_sum", "weight_square_sum"))
    return {
        **{key: dict(counter) for key, counter in counts.items()},
        "outliers": sum(summary["outliers"] for summary in summaries),
        "quarantined": sum(summary["quarantined"] for summary in summaries),
        "effective_sample_size": weight**2 / square if square else 0.0,
    }
