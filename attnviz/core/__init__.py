"""What every room shares: maps, tokens, options, tables of names, errors, notices."""

__version__ = "1.0.0"
