"""Behind the kernel projector: a prior over smooth fields, and the regression of a field onto gradients."""
