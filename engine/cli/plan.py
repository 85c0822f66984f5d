"""``rowsieve plan``: shows shards, columns and fingerprints."""

from __future__ import annotations

from engine.cli.common import AsJson, Overrides, RecipeFile, Verbose, load, print_errors
from engine.cli.safe_output import echo
from engine.core.pandas_import import keep_pandas_out


def plan(
    recipe: RecipeFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """Show shards, columns and fingerprints, without starting Ray."""
    with print_errors(verbose):
        keep_pandas_out()
        from engine.cli.columns import column_lines
        from engine.cli.output import show_json, show_plan, show_refusal
        from engine.plan.planner import make_plan
        from engine.plan.preview import pending_text_seconds, preview
        from engine.storage.withdrawals import withdrawal_against

        made = make_plan(load(recipe, overrides))
        refusal = withdrawal_against(made.output, made.version, made.inputs, made.store.replays())
        refused = refusal.withdrawal if refusal else None
        found = preview(made)
        if as_json:
            told = {
                "withdrawn": refused.why if refused else None,
                "withdrawn_as": refused.version if refused else None,
            }
            show_json(made.to_dict() | {"source": found.to_json()} | told)
            return
        show_plan(made, pending_text_seconds(made, found))
        if refused:
            show_refusal(refused.version, refused.why)
        for line in ["", *column_lines(found.columns, found.note)]:
            echo(line)
        for _, text in found.warnings():
            echo(f"\nwarning: {text}")
