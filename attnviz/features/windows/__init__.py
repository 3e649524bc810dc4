"""Where queries and keys lie in a picture, found by tracing its pixels through the model."""
