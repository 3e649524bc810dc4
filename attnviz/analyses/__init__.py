"""Map to map, or map to measure: pure numpy."""
