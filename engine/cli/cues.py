"""``rowsieve cues``: suspected shortcuts of a published version, and the recipe section with the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.table import Table

from connectors.foundation.messages import cut
from engine.cli.common import AsJson, Verbose, print_errors
from engine.cli.safe_output import SafeConsole, bold, plain_table
from engine.core.errors import InputError, RowsieveError

if TYPE_CHECKING:
    from engine.training.data.version import Version
    from operators.cues.output.record import FoundCues

console = SafeConsole()
MAX_CLASSES = 2
"""Classes up to which the accuracies of all stand in a cell."""
MAX_NAME = 24
"""Characters of the name of a class in a cell."""
GROUPS = "operators.groups: "
"""Beginning of a version's warnings that are about its groups."""
MIN_SLICE_WIDTH = 12
"""Columns of the terminal that the name of a slice keeps; accuracies of many classes wrap instead."""


def cues(
    dataset: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="Output folder of a recipe, or OUTPUT@VERSION")
    ],
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List suspected shortcuts: features that a model relies on, with gain and cost of balancing them."""
    with print_errors(verbose):
        from engine.cli.output import show_json
        from engine.training.data.version import open_version

        version = open_version(dataset)
        with naming_the_state(version):
            found = read_cues(version)
            show_json(found) if as_json else _show(found)


@contextmanager
def naming_the_state(version: Version) -> Iterator[None]:
    """Turn what a list of another form leads to into a DamagedFileError: others may change the output."""
    from engine.core.json_files import DamagedFileError
    from operators.base import OperatorError

    try:
        yield
    except OperatorError as error:  # deep, large, no JSON
        raise DamagedFileError(str(error)) from None
    except (RowsieveError, OSError):
        raise
    except Exception as error:  # a list lacks a key, or holds a text in place of a number, at any depth
        raise DamagedFileError(
            f"The state of `cues` in {version.output / 'store'} is damaged or forged ("
            f"{type(error).__name__}: {' '.join(str(error).split())[:200]}). Remove it, and run the recipe "
            "again."
        ) from None


def read_cues(version: Version) -> dict[str, Any]:
    """Read the suspects and the curve that the operator ``cues`` has found for a version.

    Returns
    -------
    The content of ``suspects.json``, with ``version`` and ``recipe_section``: the recipe's text with the
    answers of today.

    Raises
    ------
    InputError
        The version was made without ``cues``, or the run store no longer has its state.

    """
    from engine.storage.stores import store_of
    from operators.cues.output.importance import read_importance
    from operators.cues.output.listing import SUSPECTS, read_suspects, recipe_section

    known = {entry["name"]: entry["fingerprint"] for entry in version.manifest["operators"]}
    if "cues" not in known:
        raise InputError(
            f"The version {version.name} was made without the operator `cues`. Add `cues: {{}}` to the "
            "operators of its recipe, or use `weights: {}`, and run the recipe again."
        )
    folder = store_of(version.output).state(known["cues"])
    if not (folder / SUSPECTS).exists():
        raise InputError(
            f"The run store of {version.output} no longer has the state of `cues` for the version "
            f"{version.name}. Run its recipe again."
        )
    found, importance = read_suspects(folder), read_importance(folder)
    section = recipe_section(found["spurious"], found["legitimate"])
    notes = [text for text in version.manifest.get("warnings", ()) if text.startswith(GROUPS)]
    return {
        "version": version.name,
        **found,
        "importance": importance,
        "recipe_section": section,
        "group_notes": [text.removeprefix(GROUPS) for text in notes],
    }


def _show(found: dict[str, Any]) -> None:
    from operators.cues.output.leaking_values import leaking_values
    from operators.cues.output.notes import word_notes
    from operators.cues.output.report import importance_sentences
    from operators.cues.output.verdict import verdict

    record = cast("FoundCues", found)
    console.print(bold(found["version"]) + f": {verdict(record)}", soft_wrap=True)
    for note in (*word_notes(record), *leaking_values(record), *found.get("group_notes", ())):
        console.print(note, soft_wrap=True)
    if found["suspects"]:
        _show_suspects(found)
    else:
        console.print("No feature separates the rows on which a model is right from the others.")
    if found.get("importance"):
        console.print(" ".join(importance_sentences(found["importance"])), soft_wrap=True)
    if found.get("trade_off"):
        _show_curve(found["trade_off"])


def _show_suspects(found: dict[str, Any]) -> None:
    from operators.cues.output.shown_suspects import (
        answer_text,
        answers_explained,
        asked_suspects,
        balanced_unnamed,
        few_rows_sentence,
        sentence_on_entries,
        slice_text,
    )

    record = cast("FoundCues", found)
    table = Table(box=None, header_style="bold", pad_edge=False)
    columns = ("slice", "rows", "accuracy in", "accuracy out", "gain", "cost", "strength", "answer")
    for name in columns:
        left = name in ("slice", "answer")
        wraps = name == "slice" or name.startswith("accuracy")
        table.add_column(
            name,
            justify="left" if left else "right",
            no_wrap=not wraps,
            overflow="fold",
            min_width=MIN_SLICE_WIDTH if name == "slice" else 4 if wraps else len(name),
        )
    for suspect in found["suspects"]:
        table.add_row(
            slice_text(suspect),
            f"{suspect['share']:.1%}",
            *(accuracies(suspect[key]) for key in ("accuracy_inside", "accuracy_outside")),
            f"{suspect['gain']:+.3f}",
            f"{suspect['cost']:+.3f}",
            f"{suspect['strength']:.2f}",
            answer_text(suspect, record),
        )
    console.print(table)
    names = [*found["suspects"][0]["accuracy_inside"]]
    classes = f"for the classes {', '.join(names)}"
    if len(names) > MAX_CLASSES:
        classes = "for the class that has the lowest one there"
    more = "".join(f" {text}" for text in answers_explained(record))
    console.print(
        f"accuracy: of a class-balanced model on rows that it has not seen, {classes}. gain: rise of the "
        "worst class and side over the better of no weights and class balance, cost: loss of balanced "
        "accuracy against class balance, if label and slice are balanced. strength: "
        f"from 0 to 1.{more}",
        soft_wrap=True,
    )
    if said := few_rows_sentence(record):
        console.print(said, soft_wrap=True)
    if said := sentence_on_entries(record):
        console.print(said, soft_wrap=True)
    if not asked_suspects(record) and not balanced_unnamed(record):
        console.print("No suspect needs an answer.")
        return
    console.print(
        "A suspect can be honest signal: only you can tell. Put your answers into the recipe "
        "and run it again; several shortcuts are balanced together. For example:",
        soft_wrap=True,
    )
    console.print(example_section(found), soft_wrap=True)


def _show_curve(record: Mapping[str, Any]) -> None:
    """Print the trade-off over the strength of weighting."""
    from operators.cues.output.curve_report import COLUMNS, RULE, summary_sentence, table_rows

    table = plain_table(*COLUMNS, right=COLUMNS[:-1])
    for row in table_rows(record):
        table.add_row(*row)
    console.print(summary_sentence(record), soft_wrap=True)
    console.print(table)
    console.print(
        f"strength: 0 weighs all rows alike, 1 balances the classes, 2 is robust in full. {RULE}\n",
        soft_wrap=True,
    )


def accuracies(by_class: Mapping[str, float | None]) -> str:
    """Return the accuracies of two classes, in the order that a line below the table names, or the lowest of
    more classes with its name."""
    from operators.cues.output.shown_suspects import lowest_accuracies

    if len(by_class) <= MAX_CLASSES:
        return " ".join("–" if value is None else f"{value:.2f}" for value in by_class.values())
    lowest = [f"{cut(name, MAX_NAME)} {value:.2f}" for name, value in lowest_accuracies(by_class, 1)]
    return "".join(lowest) or "–"


def example_section(found: dict[str, Any]) -> str:
    """Return the recipe section to copy: today's answers, with the suspects to answer as a comment."""
    from operators.cues.named.recipe_text import yaml_reference
    from operators.cues.output.shown_suspects import asked_suspects, balanced_unnamed

    text = str(found["recipe_section"])
    names = dict.fromkeys(
        yaml_reference(suspect["reference"]) for suspect in asked_suspects(cast("FoundCues", found))
    )
    balanced = dict.fromkeys(
        yaml_reference(suspect["reference"]) for suspect in balanced_unnamed(cast("FoundCues", found))
    )
    if not names and not balanced:
        return text
    without, empty, _ = text.partition(" {}\n")
    if empty:
        text = f"{without}\n    spurious: []\n    legitimate: []\n"
    if balanced:
        text += f"    # balanced, to be named under `legitimate` if it is honest: {', '.join(balanced)}\n"
    if names:
        text += f"    # open, to be named under `spurious` or `legitimate`: {', '.join(names)}\n"
    return text
