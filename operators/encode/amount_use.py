"""Whether a column of texts holds amounts, and what is said of them.

``init`` writes the kind ``amount`` for columns that :func:`amounts_in` recognises; ``validate`` names it as
the remedy. A recipe that asks for it gets the rule of :func:`amount_use`, or an error.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from operators.base import OperatorError
from operators.encode.amounts import MAX_UNITS, MAX_UNREAD_SHARE, AmountForms, AmountRule, Decimal
from operators.encode.column_use import ColumnUse, Kind
from operators.encode.mixed_numbers import MIN_NUMBERS
from operators.encode.sketches import ValueCounts
from operators.encode.texts import numbers
from operators.yaml_text import inline_entry

AMOUNT = "amount"
"""Value of ``parse`` of a column of amounts."""
MAX_SHOWN = 3
"""Units that a sentence names."""
MIN_UNIT_SHARE = 0.01
"""Share of the values from which a unit is one of several that a column mixes."""


def amount_use(name: str, forms: AmountForms, decimal: Decimal | None) -> ColumnUse:
    """Return the use of a column that the recipe calls amounts.

    Raises
    ------
    OperatorError
        More than ``MAX_UNREAD_SHARE`` of the values are not written by one rule.
    """
    rule = forms.rule(decimal)
    n_unread, unread = forms.rows - forms.n_read(rule), forms.first_unread(rule)
    if n_unread > MAX_UNREAD_SHARE * forms.rows:
        raise OperatorError(_error(name, forms, rule))
    notes = [f"amounts {_about(rule)}"]
    if unread is not None:
        notes.append(
            f"{n_unread:,} of {forms.rows:,} values are not written so and count as missing, such as "
            f"{unread.text!r} in row {unread.first:,}"
        )
    bare = forms.n_bare(rule)
    if bare:
        notes.append(f"{bare:,} of {forms.rows:,} values have no unit and are taken to have it too")
    return ColumnUse(
        Kind.NUMERIC,
        note="; ".join(notes),
        parameters={"parse": AMOUNT, "rule": rule.to_json()},
        warning=_doubt(name, forms, rule),
    )


def _doubt(name: str, forms: AmountForms, rule: AmountRule) -> str:
    """Return what is said if no value tells the decimal mark; empty if one does."""
    text = forms.ambiguous(rule)
    if not text:
        return ""
    entries = [inline_entry(name, {"kind": AMOUNT, "decimal": mark}) for mark in (".", ",")]
    mine, other = entries if rule.decimal == "." else entries[::-1]
    return (
        f"no value tells whether ',' or '.' stands before decimals, such as {text!r}: it is read with "
        f"{rule.decimal!r}. Say so by `{mine}` under operators.encode.columns, or `{other}` for the other one"
    )


def _about(rule: AmountRule) -> str:
    unit = f"in {rule.unit!r} " if rule.unit else ""
    return f"{unit}with {rule.decimal!r} before decimals"


def _error(name: str, forms: AmountForms, rule: AmountRule) -> str:
    """Return the error for a column of which too many values are not written by one rule."""
    if not forms.seen:
        return (
            f"operators.encode.columns: {name!r} cannot be {AMOUNT}: its values have more than {MAX_UNITS} "
            f"units. Write them in one unit at the source, or give the column another kind."
        )
    n_unread, unread = forms.rows - forms.n_read(rule), forms.first_unread(rule)
    where = f", such as {unread.text!r} in row {unread.first:,}" if unread is not None else ""
    remedy = "Write them so at the source, name words for missing values under source.missing"
    if len(forms.units) > 1:
        remedy = f"The units are {_shares(forms)}: convert them into one at the source"
    return (
        f"operators.encode.columns: {name!r} cannot be {AMOUNT}: {n_unread:,} of its {forms.rows:,} values "
        f"({n_unread / forms.rows:.1%}, and at most {MAX_UNREAD_SHARE:.0%} may) are not written as amounts "
        f"{_about(rule)}{where}. {remedy}, or give the column another kind, such as "
        f"`{inline_entry(name, str(Kind.CATEGORICAL))}`."
    )


def _shares(forms: AmountForms) -> str:
    """Return the most frequent units with their rows."""
    shown = [f"{unit!r} ({rows:,})" for unit, rows in [*forms.units.items()][:MAX_SHOWN]]
    return ", ".join(shown) + (", ..." if len(forms.units) > MAX_SHOWN else "")


def amounts_in(
    values: ValueCounts, *, least: int = MIN_NUMBERS, max_bare_share: float = 1.0
) -> AmountRule | None:
    """Return the rule by which texts with their rows are amounts; None if they are none, or in several units.

    Parameters
    ----------
    values : at most ``MAX_UNREAD_SHARE`` of the rows may hold other texts, and more rows than these have to
        hold other texts than plain numbers.
    least : distinct numbers that are needed; a column of fewer may be one of grades.
    max_bare_share : share of the rows that may hold a number without the unit of the others.
    """
    forms = _forms(values)
    rule = forms.rule()
    n_unread = forms.rows - forms.n_read(rule)
    if n_unread > MAX_UNREAD_SHARE * forms.rows or forms.n_bare(rule) > max_bare_share * forms.rows:
        return None
    found = rule.read(values.values)
    other_form = ~np.isnan(found) & np.isnan(numbers(values.values))
    enough = values.counts[other_form].sum() > n_unread
    return rule if enough and len(np.unique(found[~np.isnan(found)])) >= least else None


def amount_example(texts: pa.Array) -> str:
    """Return the first amount among texts that is no plain number."""
    written = ~np.isnan(_forms_of(texts).rule().read(texts)) & np.isnan(numbers(texts))
    return str(texts[int(written.argmax())])


def several_units(values: ValueCounts) -> str:
    """Return the units of texts that are amounts in several units; empty if they are not.

    Codes such as ``136A`` and ``137B`` have letters behind their numbers, too: a unit is longer.
    """
    forms = _forms(values)
    own = {unit: rows for unit, rows in forms.units.items() if rows >= MIN_UNIT_SHARE * forms.rows}
    if not 1 < len(own) <= MAX_SHOWN or any(len(unit) == 1 and unit.isalpha() for unit in own):
        return ""
    return _shares(forms) if sum(own.values()) >= (1 - MAX_UNREAD_SHARE) * forms.rows else ""


def _forms(values: ValueCounts) -> AmountForms:
    return AmountForms.of(values.values, values.counts, np.arange(len(values.values)))


def _forms_of(texts: pa.Array) -> AmountForms:
    return _forms(ValueCounts(texts, np.ones(len(texts), np.int64)))
