"""The list of suspects, the trade-off and the report."""
