"""What a GPU computes, against the CPU of the same machine: the same values, and how fast."""
