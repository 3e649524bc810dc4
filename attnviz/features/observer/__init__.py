"""Attention of any PyTorch code as it runs, seen from outside."""
