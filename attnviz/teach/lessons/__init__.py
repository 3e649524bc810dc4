"""Lessons: one thing about attention each, in numbers from the mechanisms and in one picture."""
