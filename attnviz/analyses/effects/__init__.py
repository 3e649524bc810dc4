"""What was switched off: parts by name, links beside their estimates, how faithful lenses are."""
