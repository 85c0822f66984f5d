"""Words of texts as shortcuts."""
