"""--contacts: which residues touch, predicted from heads."""
