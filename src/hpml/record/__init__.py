"""Samples from any training loop: written by a recorder, added off the path by a probe, read back from files."""
