"""How far rewards may be from a reference, by dtype: the one place that says so.

An error is relative to the standard deviation of what is compared. Never loosened.
"""

# Of 16-bit dtypes: half a unit in the last place, with room for the roundings that a residual
# passes through: measured, 2.3 and 2.0 of 8 units.
TOLERANCES = {"float32": 1e-4, "bfloat16": 8 * 2.0**-8, "float16": 8 * 2.0**-11}
