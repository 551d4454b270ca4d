"""What a model costs before it is loaded: operations, bytes, and the step that fits.

flops        floating-point operations of passes
machines     kinds of devices, as users name them; what is free here
memory       what is planned for; its bytes on a device, in host memory and on disk
fitting      whether a model fits, here or on named devices; its step, its mesh, a sweep's time
"""
