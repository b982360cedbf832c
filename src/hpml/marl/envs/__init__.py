"""Environment families, one file each; the file's name is the first part of an environment's name."""
