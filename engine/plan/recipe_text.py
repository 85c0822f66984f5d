"""A drafted recipe as YAML with a comment for each choice."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from textwrap import TextWrapper
from typing import Any

from engine.plan.first_recipe import Draft
from engine.plan.source_columns import SourceColumn, share_text
from operators.counts import count
from operators.yaml_text import inline_entry, inline_yaml

COMMENT_AT = 34
"""Column at which comments begin, where the value before is shorter."""
LONGEST = 100
"""Longest comment, in characters, on the line of a value; a longer one is put above the value."""
OPERATORS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("probe", {}, "a linear classifier: shows which rows are hard"),
    ("cues", {}, "shortcuts that a model would lean on; `rowsieve cues OUTPUT` lists them afterwards"),
    ("groups", {"method": "cues"}, "rows of a class by whether a shortcut holds for them"),
    ("weights", {}, "follow a shortcut where the evidence agrees, else balance the classes"),
    ("split", {"validation": 0.2}, "share of rows for validation"),
)
"""The standard chain, with the purpose of each operator."""
IMAGES = "features of the images, by a pretrained network"
TEXTS = "free text through a sentence encoder, and by its words"
AMOUNTS = "`amount`: numbers that are written with a currency, a unit or thousands marks"
DURATIONS = "`duration`: lengths of time, as seconds"
FORMATS = "`format`: how dates are written"
IF_CATEGORIES = "remove a column if its texts are categories"
"""Purpose of the operators that a draft adds for images, texts, amounts, durations and dates."""
WIDTH = 110
"""Characters of a line of comments."""


def recipe_yaml(draft: Draft, command: str, file: str) -> str:
    """Return the text of a recipe.

    Parameters
    ----------
    draft
        Draft of the recipe, with its findings.
    command
        The command that drafted it, named in the first line.
    file
        Name of the recipe's file, for the commands to run next.
    """
    return (
        "\n".join([*_head(draft, command, file), *_source(draft), *_operators(draft), *_tail(draft)]) + "\n"
    )


def _head(draft: Draft, command: str, file: str) -> Iterator[str]:
    yield from _wrapped(
        f"Written by `{command}`. It is a beginning: read the comments, change what you know better, and then"
    )
    yield _one_line(f"#     rowsieve validate {shlex.quote(file)}")
    yield _one_line(f"#     rowsieve run {shlex.quote(file)}")
    yield f"# A run is expected to take {draft.estimate.text}."
    for text in (*draft.warnings, *(finding.text for finding in draft.preview.findings)):
        yield from _wrapped(f"Warning: {text}")
    yield f"name: {inline_yaml(draft.name)}"
    yield _with("seed: 0", "of every random draw: the same seed gives the same result")
    yield ""


def _source(draft: Draft) -> Iterator[str]:
    plan, label = draft.plan, draft.preview.label
    size = sum(shard.n_bytes for shard in plan.listing.shards)
    shards = f"{len(plan.shards)} shard{'s' * (len(plan.shards) != 1)}"
    yield "source:"
    about = f"{draft.format}, {plan.n_rows:,} rows, {size / 2**20:,.1f} MiB, {shards}"
    yield _with(f"  path: {inline_yaml(plan.recipe.source.path)}", about)
    rows = max(sum(label.counts.values()), 1)
    shown = ", ".join(f"{value} ({share_text(n / rows)})" for value, n in label.sorted[:4])
    more = ", ..." if len(label.counts) > 4 else ""
    where = "" if label.is_exact else " in a sample"
    yield _with(
        f"  label: {inline_yaml(label.name)}", f"{count(len(label.counts), 'class')}{where}: {shown}{more}"
    )
    for key, choice in draft.source.items():
        if key == "exclude":
            yield from _wrapped(choice.why, "  ")
            yield "  exclude:"
            for name in choice.value:
                yield _with(f"    - {inline_yaml(name)}", draft.excluded[name])
            continue
        if len(choice.why) > LONGEST:
            yield from _wrapped(f"{key}: {choice.why}", "  ")
        yield _with(
            f"  {key}: {inline_yaml(choice.value)}", choice.why if len(choice.why) <= LONGEST else "see above"
        )
    yield ""


def _operators(draft: Draft) -> Iterator[str]:
    yield from _wrapped(
        "How each column is used, as `rowsieve validate` lists it"
        + (f", judged by {draft.preview.note}" if draft.preview.note else "")
        + ". Another kind, or `exclude`, for a column: `encode: {columns: {NAME: categorical}}` below."
    )
    widths = [
        max(len(text) for text in texts) for texts in zip(*map(_cells, draft.preview.columns), strict=True)
    ]
    for column in draft.preview.columns:
        name, kind = (cell.ljust(width) for cell, width in zip(_cells(column), widths, strict=True))
        yield _one_line(f"#   {name}  {kind}  {column.about}").rstrip()
    yield "operators:"
    for name, params in draft.operators.items():
        yield from _added(name, params)
    for name, params, why in OPERATORS:
        yield _with(f"  {name}: {inline_yaml(params)}", why)
    yield ""


def _added(name: str, params: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of an operator that the source needs; those of columns stand below their reason."""
    if "columns" not in params:
        yield _with(f"  {name}: {inline_yaml(params)}", IMAGES if name == "embed" else TEXTS)
        return
    yield f"  {name}:"
    if "text" in params:
        yield _with(f"    text: {inline_yaml(params['text'])}", TEXTS)
    kinds = [kind if isinstance(kind, str) else "format" for kind in params["columns"].values()]
    said = {"amount": AMOUNTS, "duration": DURATIONS, "format": FORMATS}
    yield from _wrapped("; ".join([*(said[kind] for kind in dict.fromkeys(kinds)), IF_CATEGORIES]), "    ")
    yield "    columns:"
    for column, kind in params["columns"].items():
        yield f"      {inline_entry(column, kind)}"


def _tail(draft: Draft) -> Iterator[str]:
    yield "output:"
    path = draft.plan.recipe.output.path
    yield _with(f"  path: {inline_yaml(path)}", "versions, reports and what later runs reuse")
    if prefix := draft.plan.recipe.output.prefix:
        about = f"of the columns that Rowsieve adds: the source has one of their names ({prefix}group, ...)"
        yield _with(f"  prefix: {inline_yaml(prefix)}", about)


def _cells(column: SourceColumn) -> tuple[str, str]:
    return _one_line(column.name), column.kind


def _with(text: str, comment: str) -> str:
    """Return a line with its comment."""
    return f"{text.ljust(COMMENT_AT)}  # {_one_line(comment)}"


def _wrapped(text: str, indent: str = "") -> Iterator[str]:
    """Yield the lines of a comment."""
    wrap = TextWrapper(WIDTH, f"{indent}# ", f"{indent}# ", break_long_words=False, break_on_hyphens=False)
    yield from wrap.wrap(_one_line(text))


def _one_line(text: str) -> str:
    """Replace line ends and control characters, which would end a comment, by spaces."""
    return "".join(char if char.isprintable() else " " for char in text)
