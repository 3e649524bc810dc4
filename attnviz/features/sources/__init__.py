"""attnviz sources: which parts of a context an answer was made from, which sentences carry one."""
