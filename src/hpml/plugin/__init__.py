"""The projection inside a trainer: transformations that go into an optimiser chain."""
