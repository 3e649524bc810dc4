"""Attention weights read from any kernel."""
