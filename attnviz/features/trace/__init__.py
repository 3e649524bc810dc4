"""attnviz sources --of output: which sentences of a reasoning carry it."""
