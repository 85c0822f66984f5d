"""DCKM's table 1 and figure 2, its baselines, and the choice of lambda without labels."""
