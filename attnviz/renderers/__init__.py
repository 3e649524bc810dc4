"""Maps and measures as text, bytes or figures; nothing here opens a path."""
