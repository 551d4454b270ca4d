"""The one error that users see; apart from `types`, so that reading a run needs no jax."""


class AssayError(ValueError):
    """Bad input. The message is one line: what is wrong, where, and what is allowed."""
