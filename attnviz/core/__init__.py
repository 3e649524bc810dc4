"""What every room shares: maps, tokens, options, tables of names, errors, notices."""
