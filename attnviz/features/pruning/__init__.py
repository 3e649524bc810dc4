"""attnviz heads --effect: each head switched off, and one after another."""
