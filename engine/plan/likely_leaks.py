"""Source columns that tell the label on their own, looked for in a bounded sample of a plan's rows."""

from __future__ import annotations

from engine.plan.model import Plan
from engine.plan.sample import SourceSample, draw_sample
from engine.plan.source_columns import account_for_columns, use_by_recipe
from operators.columns import is_meant
from operators.cues.params import CuesParams, names_of
from operators.encode.column_forms import Form, form_of
from operators.ingest.label_checks import LabelCounts
from operators.ingest.labels import class_indices, count_labels
from operators.leaks import Leak, find_leaks
from operators.yaml_text import inline_yaml

MAX_CLASSES = 100
"""A label of more classes is more likely a quantity or an identifier."""
PASSED_OVER = (Form.VECTOR, Form.TAGS, Form.IMAGE, Form.OTHER, Form.NOTHING)


def likely_leaks(plan: Plan, sample: SourceSample | None = None) -> tuple[Leak, ...]:
    """Return the features that alone predict the label of unseen rows almost perfectly, the best first.

    Columns that the recipe calls ``spurious`` or ``legitimate`` under ``operators.cues`` are left out: its
    author knows them.

    Parameters
    ----------
    plan
        The plan.
    sample
        Rows of its source; default: drawn here.

    Raises
    ------
    InputError
        The source cannot be read, or a column cannot be used as the recipe says.

    """
    names = _candidates(plan)
    if not names or plan.n_rows == 0:
        return ()
    sample = sample or draw_sample(plan.source, plan.listing)
    label = plan.recipe.source.label
    if label not in sample.rows.column_names:
        return ()
    column = sample.rows[label]
    classes = sorted(count_labels(column), key=str)
    if not 2 <= len(classes) <= MAX_CLASSES:
        return ()
    y, _ = class_indices(column, classes)
    found = find_leaks({name: sample.rows[name] for name in names}, y)
    if not found:
        return ()
    used = {column.name for column in account_for_columns(plan, sample) if column.use.used}
    return tuple(leak for leak in found if leak.name in used)


def unsought_text(label: LabelCounts, sample: SourceSample) -> str:
    """Return a sentence that no leak was looked for, as the drawn rows are of one class; else nothing."""
    if label.name not in sample.rows.column_names or not 2 <= len(label.counts) <= MAX_CLASSES:
        return ""
    if len(count_labels(sample.rows[label.name])) > 1:
        return ""
    return (
        f"No column was tested for telling the label {label.name!r} on its own: the "
        f"{sample.rows.num_rows:,} rows that were drawn are of one class. Test for leaks on files that hold "
        "more rows of the other classes."
    )


def leak_text(leak: Leak) -> str:
    """Return a sentence about a leak, with the remedies."""
    column = inline_yaml([leak.name])
    return (
        f"likely leak: {leak.name!r} alone is right on {leak.score:.1%} of unseen rows (classes balanced; "
        f"{leak.chance:.0%} by chance). Unless it is known before the label is, exclude it: "
        f"source.exclude: {column}; if it is honest, say so: operators.cues.legitimate: {column}; "
        f"if it goes with the label in these rows and not elsewhere: operators.cues.spurious: {column}."
    )


def _candidates(plan: Plan) -> list[str]:
    """Return columns of numbers, texts and times that may be features."""
    cues = next((planned.operator.params for planned in plan.operators if planned.name == "cues"), None)
    known = (
        [name for reference in (*cues.spurious, *cues.legitimate) for name in names_of(reference)]
        if isinstance(cues, CuesParams)
        else []
    )
    return [
        field.name
        for field in plan.listing.schema
        if form_of(field.type) not in PASSED_OVER
        and use_by_recipe(plan.recipe, field.name) is None
        and not any(is_meant(field.name, name) for name in known)
    ]
