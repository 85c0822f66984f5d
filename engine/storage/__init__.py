"""Everything that a run keeps: run store, state synchronisation between hosts, manifests, leases, readers."""
