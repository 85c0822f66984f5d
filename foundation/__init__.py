"""Functions that ``engine``, ``operators`` and ``connectors`` share; it imports the standard library alone."""
