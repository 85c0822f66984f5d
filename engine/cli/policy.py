"""``rowsieve policy``: the limits of recipes on this installation."""

from __future__ import annotations

from engine.cli.common import AsJson, Verbose, print_errors
from engine.cli.safe_output import echo


def policy(as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show what recipes may use here, the defaults of the connectors included, and the limits of runs."""
    with print_errors(verbose):
        from engine.cli.output import show_json
        from engine.core.policy import VARIABLES, current_policy, effective, policy_source

        found = effective(current_policy())
        if as_json:
            show_json({key: {"allowed": value, "from": policy_source(key)} for key, value in found.items()})
            return
        for key, value in found.items():
            listed = ", ".join(value) if isinstance(value, list) else str(value).lower()
            allowed = "any" if value is None else listed or "none"
            echo(f"{key:<18} {allowed}  ({VARIABLES[key]}: {policy_source(key)})")
