"""Study of validation splits: which one chooses hyperparameters that hold in an unseen domain."""
