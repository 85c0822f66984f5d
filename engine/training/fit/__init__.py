"""From rows and parameters to models, in one process or on the workers of a group."""
