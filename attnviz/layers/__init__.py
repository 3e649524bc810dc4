"""Torch modules with learned projections over the mechanisms."""
