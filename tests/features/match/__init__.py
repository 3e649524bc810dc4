"""Tests of attnviz match."""
