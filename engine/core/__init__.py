"""Errors, redaction, suggestions, events, digests, JSON files and the layout of an output folder."""
