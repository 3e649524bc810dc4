"""The small trained vision transformer that ships with the package."""
