"""What layers declare of keys that are not tokens, mechanism by mechanism."""
