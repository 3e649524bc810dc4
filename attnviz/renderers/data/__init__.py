"""Maps and measures as data."""
