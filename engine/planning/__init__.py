"""What a model costs before it is loaded: operations, bytes, time, and the step that fits.

work         what is planned for: sweeps and searches
flops        floating-point operations of passes and searches
memory       bytes on a device, in host memory and on disk
machines     kinds of devices: memory and speed; what this machine has free
searches     the passes of a search's step: their floor, and their expected time
plans        whether a model fits on some devices, on which mesh, and how long it takes
admission    the same check before a command loads a model, and the choice of the step
"""
