"""Update rules and the runs that they make."""
