"""Modules that the fork server imports once for all tests."""

from importlib import import_module

from operators.registry import BUILT_IN, operator_class

for _name in ("cli.app", "cli.progress", "cli.output", "execution.cluster", "plan", "report.page", "runner"):
    import_module(f"engine.{_name}")
for _name in BUILT_IN:
    operator_class(_name)
