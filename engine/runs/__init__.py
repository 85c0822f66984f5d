"""Runs: the runner and its plugins, incremental runs, comparison, history, difference, replay, status."""
