"""Published versions: parts, manifest, exports, MLflow tracking and lineage."""
