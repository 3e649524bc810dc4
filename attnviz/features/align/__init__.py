"""attnviz align: which words of sentence pairs translate each other."""
