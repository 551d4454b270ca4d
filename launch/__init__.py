"""Commands: flags -> settings -> one call."""

import os

# Only its tokenizers are used here; that torch is missing is no news to a user.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
