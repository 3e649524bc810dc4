"""The arithmetic of attention, and lessons."""
