"""The amortised projection's parts: the potential network, its training on samples, its fit of a history."""
