"""Commands: flags -> settings -> one call. `launch/__main__.py` lists them."""

import os

# transformers warns where torch is missing; only its tokenizers are used here.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
