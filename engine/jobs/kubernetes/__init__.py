"""Write the Kubernetes manifests of a recipe (``rowsieve deploy render``); nothing is sent anywhere."""
