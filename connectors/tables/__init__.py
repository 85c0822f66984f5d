"""Tables of others: as sources, pinned to one version, and as places where a version is written to."""
