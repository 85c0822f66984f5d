"""Several hosts on one machine, by Linux namespaces; `make hosts`."""
