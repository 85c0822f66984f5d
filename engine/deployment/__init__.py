"""Manifests of a recipe for Kubernetes: ``winnow deploy render``. Plain values; nothing is sent anywhere."""
