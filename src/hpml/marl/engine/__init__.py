"""Behind the Melting Pot environments: how the engine is installed, found, made deterministic and built."""
