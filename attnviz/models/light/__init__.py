"""One network in numpy that runs the shipped models and checkpoints."""
