"""A dataset that grows and drifts night after night, with faults: nothing grows that should not."""
