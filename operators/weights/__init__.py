"""Sample weights from inferred groups."""
