/** Gradients of the output's log-probability by every attention weight. */
