"""attnviz cache: what it costs if a cache holds fewer keys."""
