"""The recipe: its sections, their checks, their schema and reference."""
