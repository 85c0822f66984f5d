"""Measurements of whether a model leans on a shortcut, and the columns that may carry one."""
