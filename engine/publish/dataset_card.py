"""The dataset card of a version: ``README.md`` with the front matter of Hugging Face's hub."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import yaml

from engine.core.errors import InputError
from engine.plan.chain import contract_columns
from operators.arrays import NOISE
from operators.base import GROUP, SPLIT, WEIGHT
from operators.counts import count
from operators.yaml_text import ValueDumper

MARKS = re.compile(r"[\\\[\]*_!~$:.@]")
"""Characters that Markdown reads as marks, or by which it recognises links."""
ADDRESSES = re.compile(r":(?=//)|(?<=www)\.|@", re.IGNORECASE)
"""Signs of an address of a page or person, of which the hub makes a link."""
MAX_ROWS = 50
"""Maximum number of groups, and of source columns, that the card lists."""
SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B")
"""The hub's classes of size, from 1,000 rows upwards by powers of ten."""
TEXT = re.compile(r"^(large_)?string$|^dictionary<values=(large_)?string")
"""Types of columns of texts, in a manifest."""


def write_card(
    manifest: Mapping[str, Any],
    files: Mapping[str, str] | None = None,
    *,
    withdrawn: str = "",
    withdrawn_bases: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the card of a version as Markdown.

    Parameters
    ----------
    manifest
        The manifest of a version.
    files
        A pattern of data files for each split of the hub; by default the parts of the version, which
        hold the rows of all splits, as one split named ``rows``: the
        hub knows ``all`` as a keyword.
    withdrawn
        Why the version was withdrawn; empty if it stands.
    withdrawn_bases
        Withdrawn versions that the version continues from, with their reasons.
    """
    found = {"rows": "data/*.parquet"} if files is None else dict(files)
    front = {
        "pretty_name": manifest["recipe"],
        "size_categories": [size_category(manifest["rows"])],
        "tags": ["rowsieve", "croissant"] if files is None else ["rowsieve"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": name, "path": path} for name, path in found.items()],
            }
        ],
    }
    sections = [
        _introduction(manifest),
        _columns(manifest, exported=files is not None),
        _counts(manifest["summary"]),
    ]
    if warnings := manifest.get("warnings"):
        sections.append("## Warnings\n\n" + _block(f"- {_text(warning)}" for warning in warnings))
    sections.append(_origin(manifest, exported=files is not None))
    for name, why in reversed(list(withdrawn_bases.items())):
        sections.insert(0, f"> **Continues from `{name}`, which was withdrawn.** {_text(why)}\n")
    if withdrawn:
        sections.insert(0, f"> **Withdrawn.** {_text(withdrawn)}\n")
    head = yaml.dump(front, Dumper=ValueDumper, sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n" + "\n".join(sections)


def size_category(rows: int) -> str:
    """Return the hub's class of size.

    Examples
    --------
    >>> size_category(999), size_category(1000), size_category(2_500_000)
    ('n<1K', '1K<n<10K', '1M<n<10M')

    """
    return SIZES[min(max(len(str(rows)) - 3, 0), len(SIZES) - 1)]


def _introduction(manifest: Mapping[str, Any]) -> str:
    source, summary = manifest["source"], manifest["summary"]
    names = contract_columns(manifest)
    for name in (SPLIT, WEIGHT, GROUP):
        if name not in names:
            raise InputError(
                f"The manifest of {manifest['version']} names no column {name!r}, so that it has no dataset "
                "card. Publish again."
            )
    split, weight, group = (_code(names[name]["name"]) for name in (SPLIT, WEIGHT, GROUP))
    unusable = ""
    if n := summary["quarantined"]:
        unusable = f" {n:,} of them could not be used: they have the split `dropped` and the weight 0."
    column = _oracle_column(manifest)
    if column is None:
        made = (
            "Rowsieve inferred a group, an outlier mark, a sample weight and a split for every row, without "
        )
        made += "group labels."
        origin = "is inferred from the data; it is not an attribute of a person"
    else:
        made = "Rowsieve gave every row a group, an outlier mark, a sample weight and a split."
        origin = f"was read from the column {_code(column)}, which the recipe names as the truth (`oracle`)"
    return (
        f"# {_text(manifest['recipe'])}\n\n"
        f"Version `{manifest['version']}`: {count(manifest['rows'], 'row')} of {_code(source['path'])}, "
        f"label {_code(source['label'])}.{unusable} {made}\n\n"
        f"Train on the rows whose {split} is `train`, with {weight} as sample weight. Rows that are "
        f"`dropped` have the weight 0. {group} {origin}.\n"
    )


def _oracle_column(manifest: Mapping[str, Any]) -> str | None:
    """Return the column that the groups were read from; None where they were inferred."""
    params: Mapping[str, Any] = next(
        (op["params"] for op in manifest["operators"] if op["name"] == "groups"), {}
    )
    return str(params["column"]) if params.get("method") == "oracle" and "column" in params else None


def _columns(manifest: Mapping[str, Any], *, exported: bool) -> str:
    """Return the table of columns. In an export, a label of texts is a ClassLabel of ``datasets``."""
    outputs = {output["name"]: output["description"] for output in manifest["outputs"]}
    ours = [c for c in manifest["schema"] if c["name"] in outputs]
    others = [c for c in manifest["schema"] if c["name"] not in outputs]
    label = manifest["source"]["label"]
    rows = [(c, "The label." if c["name"] == label else "A column of the source.") for c in others[:MAX_ROWS]]
    rows += [(c, outputs[c["name"]]) for c in ours]
    numbered = {label: "ClassLabel"} if exported else {}
    types = {
        c["name"]: numbered.get(c["name"], c["type"]) if TEXT.search(c["type"]) else c["type"]
        for c, _ in rows
    }
    lines = (f"| {_code(c['name'])} | {_code(types[c['name']])} | {_text(text)} |" for c, text in rows)
    more = len(others) - MAX_ROWS
    rest = f"\n{more:,} more columns of the source.\n" if more > 0 else ""
    return f"## Columns\n\n| column | type | content |\n|---|---|---|\n{_block(lines)}{rest}"


def _counts(summary: Mapping[str, Any]) -> str:
    quarantined = summary["quarantined"]
    sizes = {
        name: rows - (quarantined if name == str(NOISE) else 0) for name, rows in summary["groups"].items()
    }
    groups = sorted(
        ((n, rows) for n, rows in sizes.items() if rows > 0), key=lambda item: (-item[1], item[0])
    )
    lines = [f"| group {_text(name)} | {count:,} |" for name, count in groups[:MAX_ROWS]]
    if len(groups) > MAX_ROWS:
        lines.append(f"| {len(groups) - MAX_ROWS:,} more groups | {sum(n for _, n in groups[MAX_ROWS:]):,} |")
    lines += [f"| split {_text(name)} | {count:,} |" for name, count in sorted(summary["splits"].items())]
    lines.append(f"| probable outliers | {summary['outliers']:,} |")
    if quarantined:
        lines.append(f"| in quarantine: split dropped, in no group, marked as outliers | {quarantined:,} |")
    size = summary["effective_sample_size"]
    lines.append(f"| effective sample size of the weights of the train rows | {size:,.0f} |")
    return f"## Counts\n\n| rows | count |\n|---|---|\n{_block(lines)}"


def _origin(manifest: Mapping[str, Any], *, exported: bool) -> str:
    """Return the origin of the rows. An exported folder has neither manifest nor description beside it."""
    used = ", ".join(f"{_code(op['name'])} {op['version']}" for op in manifest["operators"])
    made = f"## Origin\n\nOperators: {used}. Seed: {manifest['seed']}."
    if exported:
        return (
            f"{made} This folder is an export. The manifest of version `{manifest['version']}`, in the "
            "output that it was exported from, names every file of the source with its digest, every "
            "parameter and every package.\n"
        )
    return (
        f"{made} The version's `manifest.json` names every file of the source with its digest, every "
        "parameter and every package; its `croissant.json` describes the files for loaders and catalogues.\n"
    )


def _block(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _text(value: object) -> str:
    """Return a value as Markdown text on one line that is neither HTML nor a new cell or link."""
    text = html.escape(" ".join(str(value).split()), quote=False)
    for mark in "\\|[]`*_#":
        text = text.replace(mark, f"\\{mark}")
    return ADDRESSES.sub(lambda mark: f"&#{ord(mark[0])};", text)


def _code(value: object) -> str:
    """Return a value as code on one line, also within a table.

    In HTML's ``<code>`` Markdown still makes links, pictures and emphasis: their marks become references.
    """
    plain = " ".join(str(value).split())
    text = html.escape(plain, quote=False).replace("|", "&#124;").replace("`", "&#96;")
    if text == str(value):
        return f"`{text}`"
    return f"<code>{MARKS.sub(lambda mark: f'&#{ord(mark[0])};', text)}</code>"
