"""Ordinary columns (numbers, booleans, categories, dates, text) to features, fitted over shards."""
