"""The small trained encoder–decoder that ships with the package."""
