"""Maps and measures as text for a terminal."""
