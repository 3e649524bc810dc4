"""attnviz heads: what each head does in a text or a corpus."""
