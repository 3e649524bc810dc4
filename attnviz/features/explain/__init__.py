"""attnviz explain: the fewest tokens and heads that decide an answer."""
