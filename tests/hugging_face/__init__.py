"""Tests of attnviz.models.hugging_face."""
