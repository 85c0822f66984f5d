"""From a recipe to an immutable plan."""
