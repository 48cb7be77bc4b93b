"""Results files: written, read and checked, counted. Importable without torch."""
