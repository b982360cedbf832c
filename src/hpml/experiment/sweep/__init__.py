"""Grids of environments, methods and seeds: which runs there are, which are finished, and what runs the rest."""
