"""``rowsieve policy``: what recipes may reach on this installation."""

from __future__ import annotations

from engine.cli.common import AsJson, Verbose, shown_errors
from engine.cli.safe_output import echo


def policy(as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show what recipes may use here: schemes, hosts, factories, environment names, cluster addresses."""
    with shown_errors(verbose):
        from dataclasses import asdict

        from engine.cli.output import show_json
        from engine.core.policy import VARIABLES, current_policy, policy_source

        found = asdict(current_policy())
        if as_json:
            entries = {key: None if value is None else list(value) for key, value in found.items()}
            show_json({key: {"allowed": entries[key], "from": policy_source(key)} for key in entries})
            return
        for key, value in found.items():
            allowed = "any" if value is None else ", ".join(value) or "none"
            echo(f"{key:<18} {allowed}  ({VARIABLES[key]}: {policy_source(key)})")
