"""The weights of every attention module of a pass, whatever runs over what."""
