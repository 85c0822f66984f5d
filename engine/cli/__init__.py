"""The command ``rowsieve``. Modules here import nothing heavy until a command runs."""
