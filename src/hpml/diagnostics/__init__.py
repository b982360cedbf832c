"""What a run or a sampled field says about circulation: orbits, gaps, Jacobians, loops, conventions."""
