"""Interactive figures from plain arrays, one file a kind; each returns a `FigurePart` with its numbers."""
