"""--qk FILE: attention of queries and keys that a file holds."""
