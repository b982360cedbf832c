"""Smooth fields: a prior over whole fields, and the regression of a field onto gradients, both behind the kernel projector."""
