"""What is written in C: one C file and one Python file for each part, compiled once for a machine."""
