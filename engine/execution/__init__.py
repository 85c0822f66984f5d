"""Where work runs: in this process, or on Ray. Same contract, same bytes."""
