"""The command ``winnow``. Modules here import nothing heavy until a command runs."""
