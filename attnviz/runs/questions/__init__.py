"""Questions about one answer: why a head looks there, what decided it, where it came from."""
