"""The calibrated verdict on corrupt rows against cleanlab, on problems with known damage."""
