"""The picture of two columns of tokens with lines between them."""
