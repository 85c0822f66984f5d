"""Sentences on the content of ``suspects.json``: what the weights are, why, and what the user can answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.foundation.messages import first_of, shorten
from operators.counts import count
from operators.cues.named.recipe_text import yaml_reference
from operators.cues.output.curve_report import baseline_sentence
from operators.cues.output.shown_suspects import ASKED_STRENGTH, SEE_ROWS, asked_suspects, is_entry, wins_much
from operators.cues.output.two_columns import two_columns_text
from operators.cues.params import IF_HONEST, NOTABLE_LOSS
from operators.cues.search.evidence import EQUAL_RIVAL
from operators.metrics.group_scores import MAX_NAMES, MIN_ROWS

NO_AGREEMENT = 0.5
"""Agreement of slices and twins below which no single feature carries the suspected shortcut."""

MORE_LOST = " (with wrong labels more of it loses as often as it wins, on tables with known groups)"
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
NOTABLE_SHRINKAGE = 0.05
"""Part by which limits shrink the factors of a class from which it is said."""
MIXED = 0.85
"""Gate below which kinds of evidence do not agree, and the strongest suspect is asked about."""
SENTENCE = re.compile(r"(?:`[^`]*`|[^`])*?\.(?: |$)", re.DOTALL)
"""Up to a full stop that is in no name."""
WHY_LESS = "as held-out rows of the worst class are better so than with balanced classes"


def verdict(found: Mapping[str, Any]) -> str:
    """Say what the weights are, and what they win and cost against the baseline."""
    measured = ""
    if found.get("trade_off"):
        measured = (
            f"{_limit_sentence(found)}{_wrong_labels_sentence(found)} {baseline_sentence(found['trade_off'])}"
        )
    if found["reason"]:
        return f"No shortcut was searched for ({found['reason']}). The weights balance the classes."
    if found.get("found_words"):
        return f"{words_sentence(found)}{_named_price(found)}.{measured}"
    if found.get("undivided") and found["gate"] is None:
        return _undivided_sentence(found) + measured
    if found.get("undivided"):
        return f"{_undivided(found)} {verdict({**found, 'undivided': []})}"
    if found["gate"] is None and not found.get("blend", 1.0):
        return (
            "Even a seventh of the balance of the shortcuts that the recipe names would cost more than "
            "`max_named_cost` allows, so that nothing is balanced against the label for them; they may be "
            f"honest signal. `max_named_cost: 1` balances them whatever it costs.{measured}"
        )
    if found["gate"] is None:
        return (
            "The shortcuts that the recipe names are balanced against the label"
            + _named_price(found)
            + f".{_kept_sentence(found)}{measured}"
        )
    if found.get("balanced_columns"):
        return _columns_sentence(found) + measured
    if found["gate"] > 0:
        return f"{_searched_sentence(found)}{_strongest(found)}{measured}"
    return f"{_weak_evidence(found)}{measured}"


def _limit_sentence(found: Mapping[str, Any]) -> str:
    """Say how far the least share of a class holds the weights back; empty where it hardly does."""
    trusted = [trust for trust in found.get("trust", ()) if trust > 0]
    if not found.get("blend") or "trust" not in found:
        return ""
    if not trusted:
        return " The limits leave nothing of that but class balance (`min_effective_share`)."
    if 1 - min(trusted) < NOTABLE_SHRINKAGE:
        return ""
    return (
        f" In at least one class the factors are shrunk by {1 - min(trusted):.0%}, so that the class does "
        "not rest on few of its rows (`min_effective_share`)."
    )


def _wrong_labels_sentence(found: Mapping[str, Any]) -> str:
    """Say how many of the rows that break the shortcut have wrong labels; empty where none seem to have."""
    by_class: Mapping[str, Sequence[float]] = found.get("wrong_labels", {})
    if not by_class:
        return ""
    rows, wrong = (sum(counts[k] for counts in by_class.values()) for k in (0, 1))
    ordered = sorted(by_class.items(), key=lambda item: -item[1][1] / item[1][0])
    listed = [
        f"{n_wrong / n:.0%} of {count(int(n), 'row')} of class {shorten(name)}"
        for name, (n, n_wrong) in ordered
    ]
    return (
        f" By what the other columns say, about {wrong / rows:.0%} of the sampled rows that break it have "
        f"wrong labels ({first_of(listed, MAX_NAMES)}). The rows whose labels are probably right carry the "
        "weight there, and in the following figures rows count by the probability that their label is right."
    )


def _kept_sentence(found: Mapping[str, Any]) -> str:
    """Name the columns that are balanced though the recipe names others; empty where there are none."""
    return f" So is what the search finds: {_kept_columns(found)}." if found.get("kept") else ""


def _kept_columns(found: Mapping[str, Any]) -> str:
    *first, last = [f"`{name}`" for name in found["kept"]]
    listed, it = (f"{', '.join(first)} and {last}", "them") if first else (last, "it")
    return f"{listed} (if that is honest signal, name {it} under `legitimate`)"


def _undivided_sentence(found: Mapping[str, Any]) -> str:
    """Say which named shortcuts divide no rows, and what the weights are then."""
    said = _undivided(found)
    if not found.get("blend", 1.0) and len(found["undivided"]) < len(found["spurious"]):
        return f"{said} {verdict({**found, 'undivided': [], 'trade_off': None})}"
    if len(found["undivided"]) < len(found["spurious"]):
        others = f"{said} The others are balanced against the label{_named_price(found)}."
        return others + _kept_sentence(found)
    if found.get("kept"):
        price = _price(found)
        return f"{said} What the search finds is balanced against the label{price}: {_kept_columns(found)}."
    return f"{said} The weights {_balance_of_classes(found)}."


def _undivided(found: Mapping[str, Any]) -> str:
    """Say which named shortcuts divide no rows."""
    undivided = [f"`{name}`" for name in found["undivided"]]
    return (
        f"The recipe names {' and '.join(undivided)} as spurious, but no usable cut divides the rows there, "
        "so that nothing is balanced against the label for it."
    )


def _balance_of_classes(found: Mapping[str, Any]) -> str:
    """Return what weights without a robust part do, as a predicate."""
    how = {1.0: "balance the classes", 0.0: "are the same for all rows"}.get(
        found["class_strength"], "balance the classes in part"
    )
    if found["slice_blend"] and not found["class_strength"]:
        how = "do not balance the classes"
    if found.get("leaning"):
        return f"{how}, {_why_leaning(found)}"
    return how if found["class_strength"] == 1 else f"{how}, {WHY_LESS}"


def _why_leaning(found: Mapping[str, Any]) -> str:
    """Say why the column on which models lean decided how far classes are balanced."""
    balance = "less balance" if found["class_strength"] == 1 else "balanced classes"
    return f"as with {balance} models mistake far more held-out rows that contradict `{found['leaning']}`"


def _weak_evidence(found: Mapping[str, Any]) -> str:
    """Say what the weights are where the evidence is weak, and ask about what is worth an answer."""
    equal, first = _equal_suspects(found), possible_shortcut(found)
    if first is not None and not equal:
        return _unknown_suspect(found, first)
    extra = " Robustness bold balances the slices below in part." if found["slice_blend"] else ""
    how = _balance_of_classes(found)
    weak = f"The evidence for a shortcut is weak ({_weakest(found)}), so that the weights {how}.{extra}"
    return weak + (equal or _leant_on(found))


def _unknown_suspect(found: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """Say why a suspect whose balance would win much is not balanced, and ask about it."""
    reference = yaml_reference(first["reference"])
    balanced = "balanced in part alone" if found["slice_blend"] else "not balanced"
    strongest = next(one for one in found["suspects"] if one["answer"] == "open")
    begin, lean = "It", "models lean"
    if strongest["slice"] != first["slice"]:
        gain = strongest["gain"]
        lean = "they lean too"
        begin = (
            f"Models lean most on `{strongest['slice']}`, whose balance would change the worst class and "
            f"side by {gain:+.2f}; it"
        )
    return (
        f"{begin} is not known whether `{first['slice']}`, on which {lean}, is a shortcut or honest "
        f"signal ({_weakest(found)}), so that it is {balanced} without your answer: the weights "
        f"{_balance_of_classes(found)}. Named under `spurious`, it would be balanced, which would raise the "
        f"worst class and side by {first['gain']:.2f}, for {max(first['cost'], 0.0):.2f} of balanced "
        f"accuracy: name `{reference}` there if it is a shortcut, or under `legitimate` if it is honest "
        "signal."
    )


def _weakest(found: Mapping[str, Any]) -> str:
    """Return which measurement speaks most against a shortcut."""
    return two_columns_text(found) or WEAKEST.get(found["weakest"], str(found["weakest"]).replace("_", " "))


def _searched_sentence(found: Mapping[str, Any]) -> str:
    """Say why the weights follow the robust ones, and how far."""
    if found.get("expected_gain"):
        return f"{expected_sentence(found)}: the weights follow the robust ones in full."
    share = "in full" if found["gate"] == 1 else f"by {found['gate']:.0%}, and class balance for the rest"
    evidence = (
        "The evidence for a shortcut is mixed"
        if found["gate"] < MIXED
        else "Several kinds of evidence for a shortcut agree"
    )
    return f"{evidence}: the weights follow the robust ones {share}."


def expected_sentence(found: Mapping[str, Any]) -> str:
    """Say what gain is expected, without a full stop."""
    return (
        "The evidence for a shortcut does not suffice by itself, but on tables with measurements like these, "
        "whose groups were known, the accuracy of the worst group rose by about "
        f"{found['expected_gain']:.2f}"
    )


def _strongest(found: Mapping[str, Any]) -> str:
    """Name the strongest open suspect, and what to do if it is honest; or say that no single feature carries
    the shortcut."""
    if (found["evidence"] or {}).get("agreement", 1.0) < NO_AGREEMENT:
        return " No single feature carries it, so that the list of slices can miss it."
    if said := _equal_suspects(found):
        return said
    suspects = [suspect for suspect in found["suspects"] if suspect["answer"] == "open"]
    if not suspects:
        return ""
    name, reference = suspects[0]["slice"], yaml_reference(suspects[0]["reference"])
    if is_entry(suspects[0]):
        return f" The strongest suspect is `{name}`, which has no meaning in words: {SEE_ROWS}."
    if found["gate"] < MIXED:
        return (
            f" The strongest suspect is `{name}`: name `{reference}` under `spurious` if it is a shortcut, "
            "which is then balanced against the label, or under `legitimate` if it is honest signal."
        )
    return (
        f" The strongest suspect is `{name}`: if it is honest signal, name `{reference}` under `legitimate`."
    )


def left_out_warning(rows: Mapping[str, int]) -> str:
    """Say that no figure speaks for some classes, and what to do.

    Parameters
    ----------
    rows
        Rows of each class that is in no figure of the trade-off, among those that operators learn from; at
        least one class.

    """
    listed = first_of([f"{shorten(name)} ({count(n, 'row')})" for name, n in rows.items()], MAX_NAMES)
    begin = f"the class {listed} has" if len(rows) == 1 else f"the classes {listed} have"
    it = "it" if len(rows) == 1 else "them"
    return (
        f"{begin} fewer than {MIN_ROWS} rows to learn from: no figure of the worst class or group speaks for "
        f"{it}. Add rows, lower split.validation and split.test, or join {it} with "
        f"another class (source.label_map). `operators.weights: {{min_class_rows: {min(rows.values())}, "
        f"class_strength: 1}}` gives {it} the full share of a class, which costs the other classes as far as "
        "models cannot tell them apart."
    )


def possible_shortcut(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the strongest suspect to ask about whose balance would win much, if any."""
    return next((suspect for suspect in asked_suspects(found) if wins_much(suspect)), None)


def summary(found: Mapping[str, Any]) -> str:
    """Return the beginning of the verdict: what the weights are and why."""
    text = verdict({**found, "trade_off": None})
    sentences = SENTENCE.findall(text)
    expected = found.get("balanced_columns") and found.get("expected_gain")
    in_two = found["reason"] or found.get("found_words") or expected
    return "".join(sentences[: 2 if in_two else 1]).strip() or text


def _leant_on(found: Mapping[str, Any]) -> str:
    """Name the strongest open suspect where models clearly lean on it but its balance wins little."""
    suspects = [
        one for one in found["suspects"] if one["answer"] == "open" and one["strength"] >= ASKED_STRENGTH
    ]
    if not suspects:
        return ""
    first = suspects[0]
    return (
        f" Models lean most on `{first['slice']}`. To balance that would raise the worst class and side by "
        f"{first['gain']:.2f} on held-out rows, for {first['cost']:.2f} of balanced accuracy: name "
        f"`{yaml_reference(first['reference'])}` under `spurious` if you know that it is a shortcut."
    )


def _equal_suspects(found: Mapping[str, Any]) -> str:
    """Name two columns that are suspected about equally, which only the user can tell apart; empty if there
    are none."""
    if (found["evidence"] or {}).get("slice_rival", 0.0) < EQUAL_RIVAL:
        return ""
    suspects = [one for one in found["suspects"] if one["answer"] == "open" and not is_entry(one)]
    names = [yaml_reference(one["reference"]) for one in suspects]
    first, *others = dict.fromkeys(names) or [""]
    if not others:
        return ""
    return (
        f" `{first}` and `{others[0]}` are suspected about equally, and nothing measured tells which one "
        "carries a shortcut: name that one under `spurious`, and honest signal under `legitimate`."
    )


def _columns_sentence(found: Mapping[str, Any]) -> str:
    """Say which column stands for the classes, or which columns of one value each, and how far that is
    balanced."""
    names = (
        [found["balanced_columns"]]
        if isinstance(found["balanced_columns"], str)
        else found["balanced_columns"]
    )
    *first, last = (f"`{name}`" for name in names)
    listed = f"{', '.join(first)} and {last}" if first else last
    it_is, it = ("they are", "them") if first else ("it is", "it")
    many = (found["evidence"] or {}).get("classes", 2) > 2
    why = MORE_LOST if many and found.get("wrong_labels") else ""
    share = "in full" if found["gate"] == 1 else f"by {found['gate']:.0%}{why}"
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
    if "one_class" in found:
        told = f"tell class {found['one_class']} from the others"
    return (
        f"The values of {listed} {told}{reason}: the weights balance {it} against the label {share}. {honest}"
    )


def words_sentence(found: Mapping[str, Any]) -> str:
    """Say which words of texts were found to carry a shortcut, without a full stop."""
    sets = [(one["column"], _quoted(one["words"])) for one in found["found_words"]]
    named = " and ".join(f"{words} in `{column}`" for column, words in sets)
    is_one = sum(len(one["words"]) for one in found["found_words"]) == 1
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


def _named_price(found: Mapping[str, Any]) -> str:
    """Say how far named shortcuts are balanced and what it costs; empty where it was not measured."""
    if "named_cost" not in found:
        return ""
    advice = WORDS_IF_HONEST if found.get("found_words") else IF_HONEST
    price, cost = _price(found), found["named_cost"]
    if found.get("searched_part"):
        share = f"{found['searched_part']:.0%}"
        price += f"; the search finds a shortcut as well, which has {share} of the robust weights"
    return price + (advice if cost > NOTABLE_LOSS else "")


def _price(found: Mapping[str, Any]) -> str:
    part, cost = f"{found['blend']:.0%}", max(found["named_cost"], 0.0)
    return f" by {part}, which costs {cost:.3f} of balanced accuracy on held-out rows"


def word_notes(found: Mapping[str, Any]) -> list[str]:
    """Return sentences on words of the recipe that cannot be balanced as meant."""
    return [f"Words that the recipe names: {sentence}" for sentence in found.get("unclear", ())]


def ineffective_answers(found: Mapping[str, Any]) -> list[str]:
    """Return sentences on names of the recipe that are not balanced as meant, with the remedy."""
    if notes := word_notes(found):
        return notes
    listed = "`rowsieve cues OUTPUT` lists features and words that divide the rows."
    return [f"{_undivided(found)} {listed}"] if found.get("undivided") else []
