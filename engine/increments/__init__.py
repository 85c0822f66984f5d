"""Versions over time: increments on the last one, drift, history, what differs, and retraining."""
