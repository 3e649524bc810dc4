"""Texts become what a model reads."""
