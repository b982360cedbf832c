"""Training algorithms, one file each; the file's name is the algorithm's name."""
