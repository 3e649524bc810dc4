"""attnviz watch: the attention of any PyTorch program."""
