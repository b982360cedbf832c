"""From samples to potential and residual: the projectors and what they are built from."""
