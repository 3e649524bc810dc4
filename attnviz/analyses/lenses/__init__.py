"""What can be made of a text's attention: a lens a file."""
