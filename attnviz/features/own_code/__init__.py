"""Models of texts whose code is their own: read as watch reads any program."""
