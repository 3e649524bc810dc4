"""Every model type of the installed transformers, tried: a development program, no test.

`nox -s families` makes a small copy of each type with random weights, reads it by attnviz's public
doors, compares the weights with transformers' eager ones, and writes docs/tables/types.md.
"""
