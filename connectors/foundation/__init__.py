"""Code that ``engine``, ``operators`` and ``connectors`` share. It imports the standard library alone."""
