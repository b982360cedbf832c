"""Several agents that learn at once: environments, algorithms, collection and the projection inside their updates."""
