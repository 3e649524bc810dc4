"""attnviz heads --treebank: which head finds which relation."""
