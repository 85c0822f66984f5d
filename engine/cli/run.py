"""``rowsieve run``: runs a recipe and publishes a version."""

from __future__ import annotations

from engine.cli.common import (
    AsJson,
    LogFormat,
    Overrides,
    RecipeFile,
    Verbose,
    finish_on_sigterm,
    load,
    print_errors,
)


def run(
    recipe: RecipeFile,
    overrides: Overrides = None,
    log_format: LogFormat = "auto",
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run a recipe and publish a version. Committed work is reused."""
    with print_errors(verbose):
        from engine.cli.output import show_result
        from engine.cli.progress import listener_for
        from engine.execution.cluster import set_environment
        from engine.runs.runner import run as engine_run

        set_environment(verbose)
        loaded = load(recipe, overrides)
        with finish_on_sigterm(), listener_for(log_format) as listener:
            result = engine_run(loaded, listener=listener, verbose=verbose)
        show_result(result, as_json=as_json or log_format == "json")
