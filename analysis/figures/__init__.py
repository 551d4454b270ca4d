"""Figures: each function takes a finished table and returns a `matplotlib.figure.Figure`.

Only this package imports a plotting library. Everything that is drawn as text goes through
`style.drawable`, for a vocabulary holds every script, and most of them no font has.
"""
