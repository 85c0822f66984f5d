"""Execution: executors (in this process, on Ray) with one contract, the worker, and the quarantine."""
