"""Running and keeping: what a training run is asked for, the loop that does it, and the folder that holds it."""
