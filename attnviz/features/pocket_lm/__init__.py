"""The small trained decoder of the Llama shape that ships with the package."""
