"""Commands: flags -> settings -> one call. `launch/__main__.py` lists them."""

import os

# Before NumPy is imported. The products of an analysis are small: on a busy machine the threads of
# BLAS wait for one another ten times longer than a product takes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
