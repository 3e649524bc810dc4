"""What each part of a model writes into the residual stream, and what reads it."""
