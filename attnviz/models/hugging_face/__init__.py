"""Pretrained models: load, tokenize and read out attention."""
