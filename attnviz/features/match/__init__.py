"""attnviz match: late interaction, the similarity of each query token to each document token."""
