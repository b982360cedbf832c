"""Update rules, one file each: a file holds one `Rule`, and its name is the name of the rule."""
