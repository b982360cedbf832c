"""Fields with known structure: matrix and Markov games, and small fields whose split is known."""
