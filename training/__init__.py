"""How the pocket model's weights are made: text, teacher alignments, objectives and the loop."""
