"""A name becomes a loaded model."""
