"""The methods. Each has a kernel of pure arrays and an adaptor that runs it over shards; see README.md."""
