"""Near duplicates of texts by MinHash, of vectors by trees: within the source and against older rows."""
