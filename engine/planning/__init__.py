"""What a model costs before it is loaded: operations, bytes, and the step that fits.

flops        floating-point operations of passes and searches
machines     kinds of devices, as users name them; what is free here
memory       what is planned for; its bytes on a device, in host memory and on disk
admission    before a command loads a model: whether it fits here, and its step
plans        whether a model fits on named devices, on which mesh, and how long a sweep takes
"""
