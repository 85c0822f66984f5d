"""Train, validation and test parts of the curated dataset."""
