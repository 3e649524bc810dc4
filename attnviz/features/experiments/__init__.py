"""A model with its input, to run with parts of it switched off."""
