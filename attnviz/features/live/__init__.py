"""attnviz live: pages that answer, from a server or with the model inside."""
