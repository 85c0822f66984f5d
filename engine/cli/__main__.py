"""``python -m engine.cli``: the command where only the source is there, as in a job on a cluster."""

from engine.cli.app import main

main()
