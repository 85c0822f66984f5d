"""What runs on a GPU, against the CPU."""
