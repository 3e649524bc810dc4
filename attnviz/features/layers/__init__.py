"""Torch modules with learned projections over the mechanisms, which `attnviz.layers` offers."""
