"""Sentences on the content of ``suspects.json``: what the weights are, why, and what the user can answer.

``_verdict`` lists the cases; each has a function, which returns a ``Verdict``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from operators.cues.named.recipe_text import yaml_reference
from operators.cues.output.curve_report import baseline_sentence
from operators.cues.output.notes import limit_sentence, listed, undivided_sentence, wrong_labels_sentence
from operators.cues.output.part_reasons import why_named_part, why_part
from operators.cues.output.record import FoundCues, Suspect
from operators.cues.output.shown_suspects import (
    ASKED_STRENGTH,
    SEE_ROWS,
    asked_suspects,
    balance_effect,
    is_entry,
    is_open,
    wins_much,
)
from operators.cues.params import IF_HONEST, NOTABLE_LOSS
from operators.cues.search.evidence import EQUAL_RIVAL

NO_AGREEMENT = 0.5
"""Agreement of slices and twins below which no single feature carries the suspected shortcut."""

WORDS_IF_HONEST = "; if the words are honest signal, that is a loss: name them under `legitimate`"
WEAKEST = {
    "agreement": "no single feature alone explains where models fail",
    "mistake_confidence": "models are not sure of themselves where they are wrong",
    "crispness": "what models get right does not follow one clear rule",
    "recovery": "rows on which models fail are hardly put right by giving them more weight",
    "error": "models fail on so many rows that no shortcut is needed to explain it",
    "gain": "robust weights do not raise the worst accuracy on held-out rows",
    "gain over the baseline": "robust weights raise the worst accuracy on held-out rows too little",
    "cost": "giving weight to the rows on which models fail costs much accuracy",
    "exchange": "robust weights put few rows right for each that they make wrong",
    "share_support": "it lies in class shares of a column of many values, and the other columns do not "
    "support that this is a shortcut",
    "slice_support": "the other columns do not support that the column on which models lean most carries one",
    "several": "several columns look like shortcuts, but held-out rows or the other columns do not support "
    "that they are balanced together",
    "without_strong_slice": "no column leads, and robust weights put few rows right for each made wrong",
    "not_honest": "robust weights gain little on held-out rows, as where models lean on an honest column or "
    "labels are wrong",
}
"""Words for the measurement that shuts the gate."""
MIXED = 0.85
"""Gate below which kinds of evidence do not agree, and the strongest suspect is asked about."""
WHY_LESS = "as held-out rows of the worst class are better so than with balanced classes"


class Verdict(NamedTuple):
    """Sentences on the weights.

    Attributes
    ----------
    outcome
        What the weights are, and why: the beginning, which the log and the findings of a report have.
    more
        Further sentences, such as what the user can answer; may be empty.

    """

    outcome: str
    more: str = ""


def verdict(found: FoundCues) -> str:
    """Say what the weights are, and what they win and cost against the baseline."""
    curve = found.get("trade_off")
    measured = () if found["reason"] or not curve else _measured(found, curve)
    return _joined(*_verdict(found), why_named_part(found), *measured)


def summary(found: FoundCues, *, undivided: bool = True) -> str:
    """Return the beginning of the verdict: what the weights are and why.

    Without ``undivided`` it is that of the weights where named shortcuts that divide no rows are told before.
    """
    return _verdict(found, undivided=undivided).outcome


def _verdict(found: FoundCues, *, undivided: bool = True) -> Verdict:
    """Return what is said without held-out figures, in the first of these cases that there is."""
    if found["reason"]:
        return Verdict(f"No shortcut was searched for ({found['reason']}). The weights balance the classes.")
    if found.get("found_words"):
        return Verdict(f"{words_sentence(found)}{_named_price(found)}.")
    if undivided and found.get("undivided"):
        searched = found["part"] is not None
        return Verdict(undivided_sentence(found), _joined(*_searched(found)) if searched else _others(found))
    return _named(found) if found["part"] is None else _searched(found)


def _named(found: FoundCues) -> Verdict:
    """Say how far the shortcuts that the recipe names are balanced; each of them divides the rows."""
    if not found.get("blend", 1.0):
        return _too_dear()
    return Verdict(
        f"The shortcuts that the recipe names are balanced against the label{_named_price(found)}.",
        _kept_sentence(found),
    )


def _searched(found: FoundCues) -> Verdict:
    """Say what was done by the search alone: columns, twins and slices, or class balance."""
    if found.get("balanced_columns"):
        return _columns(found)
    if found["part"]:
        return Verdict(_searched_sentence(found), _strongest(found))
    return _weak_evidence(found)


def _too_dear() -> Verdict:
    """Say that named shortcuts are not balanced, as that would cost more than the user allows."""
    return Verdict(
        "Even a seventh of the balance of the shortcuts that the recipe names would cost more than "
        "`max_named_cost` allows, so that nothing is balanced against the label for them; they may be "
        "honest signal.",
        "`max_named_cost: 1` balances them whatever it costs.",
    )


def _measured(found: FoundCues, curve: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what limits and wrong labels do, and what the weights win and cost on held-out rows."""
    return limit_sentence(found), wrong_labels_sentence(found), baseline_sentence(curve)


def _joined(*sentences: str) -> str:
    """Return sentences one after the other, without those that are empty."""
    return " ".join(filter(None, sentences))


def _kept_sentence(found: FoundCues) -> str:
    """Name the columns that are balanced though the recipe names others; empty where there are none."""
    return f"So is what the search finds: {_kept_columns(found)}." if found.get("kept") else ""


def _kept_columns(found: FoundCues) -> str:
    names = [f"`{name}`" for name in found["kept"]]
    it = "them" if len(names) > 1 else "it"
    return f"{listed(names)} (if that is honest signal, name {it} under `legitimate`)"


def _others(found: FoundCues) -> str:
    """Say what the weights are where some of the named shortcuts divide no rows, or none of them does."""
    some = len(found["undivided"]) < len(found["spurious"])
    if some and not found.get("blend", 1.0):
        return _joined(*_too_dear())
    if some:
        price = _named_price(found)
        return _joined(f"The others are balanced against the label{price}.", _kept_sentence(found))
    if found.get("kept"):
        price = _price(found)
        return f"What the search finds is balanced against the label{price}: {_kept_columns(found)}."
    return f"The weights {_balance_of_classes(found)}."


def _balance_of_classes(found: FoundCues) -> str:
    """Return what weights without a robust part do, as a predicate."""
    how = {1.0: "balance the classes", 0.0: "are the same for all rows"}.get(
        found["class_strength"], "balance the classes in part"
    )
    if found["slice_blend"] and not found["class_strength"]:
        how = "do not balance the classes"
    if found.get("leaning"):
        return f"{how}, {_why_leaning(found)}"
    return how if found["class_strength"] == 1 else f"{how}, {WHY_LESS}"


def _why_leaning(found: FoundCues) -> str:
    """Say why the column on which models lean decided how far classes are balanced."""
    balance = "less balance" if found["class_strength"] == 1 else "balanced classes"
    return f"as with {balance} models mistake far more held-out rows that contradict `{found['leaning']}`"


def _weak_evidence(found: FoundCues) -> Verdict:
    """Say what the weights are where the evidence is weak, and ask about what is worth an answer."""
    equal, first = _equal_suspects(found), possible_shortcut(found)
    if first is not None and not equal:
        return _unknown_suspect(found, first)
    extra = "Robustness bold balances the slices below in part." if found["slice_blend"] else ""
    how = _balance_of_classes(found)
    outcome = f"The evidence for a shortcut is weak ({_weakest(found)}), so that the weights {how}."
    return Verdict(outcome, _joined(extra, equal or _leant_on(found)))


def _unknown_suspect(found: FoundCues, first: Suspect) -> Verdict:
    """Say why a suspect whose balance would win much is not balanced, and ask about it."""
    reference = yaml_reference(first["reference"])
    balanced = "balanced in part alone" if found["slice_blend"] else "not balanced"
    others = [] if wins_much(first) else asked_suspects(found)
    second = next((s for s in others if wins_much(s) and yaml_reference(s["reference"]) != reference), None)
    return Verdict(
        f"It is not known whether `{first['slice']}`, on which models lean, is a shortcut or honest "
        f"signal ({_weakest(found)}), so that it is {balanced} without your answer: the weights "
        f"{_balance_of_classes(found)}.",
        _joined(
            f"Named under `spurious`, it would be balanced, which would {balance_effect(first)}, for "
            f"{max(first['cost'], 0.0):.2f} of balanced accuracy: name `{reference}` there if it is a "
            "shortcut, or under `legitimate` if it is honest signal.",
            _asked_next(second) if second else "",
        ),
    )


def _asked_next(suspect: Suspect) -> str:
    """Ask about a suspect on which models lean less than on the first, and whose balance would win more."""
    return (
        f"Models lean less on `{suspect['slice']}`; to balance that would {balance_effect(suspect)}, for "
        f"{max(suspect['cost'], 0.0):.2f}: name `{yaml_reference(suspect['reference'])}` in the same way if "
        "you know what it is."
    )


def _weakest(found: FoundCues) -> str:
    """Return which measurement speaks most against a shortcut."""
    weakest = str(found["weakest"])
    return WEAKEST.get(weakest, weakest.replace("_", " "))


def _searched_sentence(found: FoundCues) -> str:
    """Say why the weights follow the robust ones, and how far."""
    if found.get("expected_gain"):
        return f"{expected_sentence(found)}: the weights follow the robust ones in full."
    part = found["part"] or 0.0
    share = "in full" if part == 1 else f"by {part:.0%}, and class balance for the rest"
    evidence = (
        "The evidence for a shortcut is mixed"
        if part < MIXED
        else "Several kinds of evidence for a shortcut agree"
    )
    return f"{evidence}: the weights follow the robust ones {share}."


def expected_sentence(found: FoundCues) -> str:
    """Say what gain is expected, without a full stop."""
    return (
        "The evidence for a shortcut does not suffice by itself, but on tables with measurements like these, "
        "whose groups were known, the accuracy of the worst group rose by about "
        f"{found['expected_gain']:.2f}"
    )


def _strongest(found: FoundCues) -> str:
    """Name the strongest open suspect, and what to do if it is honest; or say that no single feature carries
    the shortcut."""
    if (found["evidence"] or {}).get("agreement", 1.0) < NO_AGREEMENT:
        return "No single feature carries it, so that the list of slices can miss it."
    if said := _equal_suspects(found):
        return said
    suspects = [suspect for suspect in found["suspects"] if is_open(suspect)]
    if not suspects:
        return ""
    name, reference = suspects[0]["slice"], yaml_reference(suspects[0]["reference"])
    if is_entry(suspects[0]):
        return f"The strongest suspect is `{name}`, which has no meaning in words: {SEE_ROWS}."
    if (found["part"] or 0.0) < MIXED:
        return (
            f"The strongest suspect is `{name}`: name `{reference}` under `spurious` if it is a shortcut, "
            "which is then balanced against the label, or under `legitimate` if it is honest signal."
        )
    return (
        f"The strongest suspect is `{name}`: if it is honest signal, name `{reference}` under `legitimate`. "
        "The robust weights give weight to the rows on which models fail, and may balance it less than "
        "its name under `spurious` does, if it is a shortcut."
    )


def possible_shortcut(found: FoundCues) -> Suspect | None:
    """Return the suspect to ask about first, the strongest, if the balance of any would win much."""
    asked = asked_suspects(found)
    return asked[0] if any(map(wins_much, asked)) else None


def _leant_on(found: FoundCues) -> str:
    """Name the strongest open suspect where models clearly lean on it but its balance wins little."""
    asked = asked_suspects(found)
    first = next((one for one in asked if one["strength"] >= ASKED_STRENGTH or one.get("leads")), None)
    if first is None:
        return ""
    return (
        f"Models lean most on `{first['slice']}`. On held-out rows its balance would "
        f"{balance_effect(first)}, for {first['cost']:.2f} of balanced accuracy: name "
        f"`{yaml_reference(first['reference'])}` under `spurious` if you know that it is a shortcut."
    )


def _equal_suspects(found: FoundCues) -> str:
    """Name two columns that are suspected about equally, which only the user can tell apart; empty if there
    are none."""
    if (found["evidence"] or {}).get("slice_rival", 0.0) < EQUAL_RIVAL:
        return ""
    suspects = [one for one in found["suspects"] if is_open(one) and not is_entry(one)]
    names = [yaml_reference(one["reference"]) for one in suspects]
    first, *others = dict.fromkeys(names) or [""]
    if not others:
        return ""
    return (
        f"`{first}` and `{others[0]}` are suspected about equally, and nothing measured tells whether "
        "one of them carries a shortcut: if you know that one does, name it under `spurious`, and honest "
        "signal under `legitimate`."
    )


def _columns(found: FoundCues) -> Verdict:
    """Say which column stands for the classes, or which columns of one value each, and how far that is
    balanced."""
    columns = found["balanced_columns"] or ()
    names = [f"`{name}`" for name in ([columns] if isinstance(columns, str) else columns)]
    it_is, it = ("they are", "them") if len(names) > 1 else ("it is", "it")
    share = "in full" if found["part"] == 1 else f"by {found['part']:.0%} ({why_part(found)})"
    reason = (
        ", and the other columns tell the label too, but not which rows are exceptions to this, which points "
        "to a shortcut"
    )
    honest = f"If {it_is} honest signal, name {it} under `legitimate`."
    if found.get("several"):
        honest = "Each carries a shortcut of its own; if one is honest signal, name it under `legitimate`."
    if found.get("expected_gain"):
        reason = f". {expected_sentence(found)}"
    told = "go with the classes"
    if "class_sets" in found:
        told = f"tell {_told_sets(found['class_sets'])}"
    return Verdict(
        f"The values of {listed(names)} {told}{reason}: the weights balance {it} against the label {share}.",
        honest,
    )


def _told_sets(sets: Sequence[Sequence[str]]) -> str:
    """Say which classes are told from the others, or of three and more sets which from each other."""
    named = [f"the classes {listed(names)}" if len(names) > 1 else f"class {names[0]}" for names in sets]
    return f"{named[0]} from the others" if len(sets) == 2 else f"{'; '.join(named)} from each other"


def words_sentence(found: FoundCues) -> str:
    """Say which words of texts were found to carry a shortcut, without a full stop."""
    words_of = found["found_words"] or ()
    sets = [(one["column"], _quoted(one["words"])) for one in words_of]
    named = " and ".join(f"{words} in `{column}`" for column, words in sets)
    is_one = sum(len(one["words"]) for one in words_of) == 1
    go, they, occur, are = (
        ("goes", "it", "occurs", "It is") if is_one else ("go", "they", "occur", "They are")
    )
    return (
        f"Words carry a shortcut: {named} {go} with the label, while the other words tell the label less "
        f"well and, among the rows of one class, do not tell whether {they} {occur}. {are} balanced "
        "against the label"
    )


def _quoted(words: Sequence[str]) -> str:
    return " or ".join(f"'{word}'" for word in words)


def _named_price(found: FoundCues) -> str:
    """Say how far named shortcuts are balanced and what it costs; empty where it was not measured."""
    if "named_cost" not in found:
        return ""
    advice = WORDS_IF_HONEST if found.get("found_words") else IF_HONEST
    price, cost = _price(found), found["named_cost"]
    if found.get("searched_part"):
        share = f"{found['searched_part']:.0%}"
        price += f"; the search finds a shortcut as well, which has {share} of the robust weights"
    return price + (advice if cost > NOTABLE_LOSS else "")


def _price(found: FoundCues) -> str:
    part, cost = f"{found['blend']:.0%}", max(found["named_cost"], 0.0)
    return f" by {part}, which costs {cost:.3f} of balanced accuracy on held-out rows"
