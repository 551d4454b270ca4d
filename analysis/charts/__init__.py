"""Charts: specifications of Vega-Lite, made from finished tables.

Only this package imports Altair. A chart computes nothing that a table does not hold: it joins
names, bins what is dense, and draws.
"""
