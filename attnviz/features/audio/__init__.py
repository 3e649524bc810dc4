"""attnviz audio: when a speech model listens, and when each word is spoken."""
