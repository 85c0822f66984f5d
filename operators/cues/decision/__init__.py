"""The strength at which weights are published: tried on rows that the models have not seen."""
