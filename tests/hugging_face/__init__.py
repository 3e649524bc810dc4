"""Tests of attnviz.hugging_face."""
