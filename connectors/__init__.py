"""Sources and sinks: bytes to Arrow and back. They know nothing of methods."""

from connectors.base import ConnectorError, Listing, Source, SourceShard
from connectors.files import open_source

__all__ = ["ConnectorError", "Listing", "Source", "SourceShard", "open_source"]
