"""Methods of group learning side by side, scored against the truth that a recipe names.

Importing this package does not import matplotlib or the engine's runner.
"""
