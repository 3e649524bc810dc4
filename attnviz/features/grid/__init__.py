"""The picture of every head side by side, and of several maps as panels."""
