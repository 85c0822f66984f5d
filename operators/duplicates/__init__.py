"""Near duplicates of texts by MinHash, or of vectors by FAISS: within the source and against older rows."""
