"""Real tables end to end: ``python -m tests.paper.real`` writes ``tests/paper/REAL.md``."""
