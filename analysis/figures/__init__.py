"""Style and drawing primitives that several chapters use.

Everything that is drawn as text goes through `style.drawable`, because a vocabulary holds every
script, and no font has them all.
"""
