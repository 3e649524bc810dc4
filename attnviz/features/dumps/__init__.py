"""Attention that other programs saved: its arrays, and their maps as a source."""
