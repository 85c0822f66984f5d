"""The rows that operators learn from, drawn from the source before anything is fitted."""
