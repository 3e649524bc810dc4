"""Vision models: a picture, alone or with a text, as what a source reads."""
