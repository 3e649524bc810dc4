"""The JSON Schema of every document, and the names of their fields."""
