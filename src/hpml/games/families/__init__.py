"""Game families, one file each; `examples()` of a file names the games that tests and the catalogue show."""
