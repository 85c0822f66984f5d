"""Columns divided into sides, each of which stands for a class, and their balance against the label."""
