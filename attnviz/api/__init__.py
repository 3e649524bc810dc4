"""The functions of Python, by the names and with the options of the command line."""
