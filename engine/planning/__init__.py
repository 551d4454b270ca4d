"""What a model costs before it is loaded: operations, bytes, and the step that fits.

work         what is planned for: a sweep, or a search
flops        floating-point operations of passes and searches
memory       bytes on a device, in host memory and on disk
step_size    how many candidates a step has; which settings make a model fit
admission    before a command loads a model: whether it fits here, and its step
machines     kinds of devices; what this machine has free
plans        whether a model fits on named devices, on which mesh, and how long a sweep takes
"""
