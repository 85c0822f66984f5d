"""Raw source columns to features and class indices: the first operator of every run."""
