"""DBSCAN against its peers."""
