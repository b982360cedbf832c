"""The sample graph and what is solved on it (`sec:discrete`, `alg:hodge-proj`)."""
