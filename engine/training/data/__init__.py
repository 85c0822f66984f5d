"""The input of a training: a published version, its rows by split, their features and weights."""
