"""Checkpoints and the models inside, run by numpy through one network."""
