"""Manifests of a recipe for Kubernetes: ``rowsieve deploy render``. Nothing is sent anywhere."""
