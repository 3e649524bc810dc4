"""attnviz models: what is on this machine, and what can be seen of a model."""
