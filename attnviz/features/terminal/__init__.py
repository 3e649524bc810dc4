"""Matrices and heads as pictures in the terminal."""
