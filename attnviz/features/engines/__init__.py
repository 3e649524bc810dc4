"""Engines of several workers: processes of this machine, or a Ray cluster."""
