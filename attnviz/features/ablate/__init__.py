"""attnviz ablate: what changes when heads, links or tokens are switched off."""
