"""Lenses: one file for each thing that can be computed from a text's attention."""
