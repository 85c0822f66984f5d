"""Text and images to feature vectors by pretrained networks."""
