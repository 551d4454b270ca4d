"""What a model costs before it is loaded: operations, bytes, and the step that fits.

work         what is planned for: a sweep, or a search
flops        floating-point operations of passes and searches
memory       bytes on a device, in host memory and on disk; the step that fits
admission    before a command loads a model: whether it fits here, and its step
free         memory and disk that this machine has free
machines     kinds of devices, as users name them
plans        whether a model fits on named devices, on which mesh, and how long a sweep takes
"""
