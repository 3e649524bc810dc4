"""Features: each a folder with its command, which the core names in a table and never imports."""
