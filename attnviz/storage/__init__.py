"""Maps to and from JSON documents and .npz archives: the pipe between two commands."""
