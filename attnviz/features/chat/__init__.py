"""attnviz self --chat FILE: which parts of a chat its answer looks at."""
