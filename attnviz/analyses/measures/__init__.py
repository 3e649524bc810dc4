"""Numbers for each head, by topic."""
