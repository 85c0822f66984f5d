"""Coverage-guided fuzzing of everything that reads untrusted bytes: ``make fuzz``."""
