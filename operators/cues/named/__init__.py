"""Shortcuts that the recipe names."""
