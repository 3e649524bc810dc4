"""attnviz compare: what changed between two attentions or ablations, or over a training run."""
