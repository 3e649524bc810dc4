"""attnviz heads --wiring: which heads read which heads."""
