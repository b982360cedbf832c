"""Where samples live: metrics, domains, measures, the samples themselves, their history and their span."""
