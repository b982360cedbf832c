"""The paper's bounds as objects that take a run and say whether they hold on it, and on what they rest."""
