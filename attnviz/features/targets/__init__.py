"""Which output of a model --target names."""
