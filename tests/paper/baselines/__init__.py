"""Our weights beside the usual baselines: ``python -m tests.paper.baselines`` writes ``BASELINES.md``."""
