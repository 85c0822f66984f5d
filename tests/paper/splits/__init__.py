"""Which validation split chooses hyperparameters that hold in a domain nobody has seen."""
