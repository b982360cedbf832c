"""Statistics over runs and tasks: scales, aggregates, intervals, comparisons, and what too few runs cannot show."""
