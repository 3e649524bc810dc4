"""Videos: frames of films, and models that read them as tubes over time, height and width."""
