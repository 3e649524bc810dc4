"""Vision models and pictures."""
