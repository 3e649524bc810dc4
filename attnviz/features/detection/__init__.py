"""Models that find objects: what each of their queries looks at in a picture."""
