"""Requests and texts become results, one or many."""
