"""The arithmetic of attention, matrix by matrix: computed once, shown as table, data or picture."""
