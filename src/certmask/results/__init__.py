"""Results files: written, read, counted. Importable without torch."""
