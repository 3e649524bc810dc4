"""attnviz image: where in a picture a vision model looks."""
