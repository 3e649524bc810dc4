"""Lenses that need more than the weights of attention, and how faithful they are."""
