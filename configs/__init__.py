"""Settings as data: neither jax nor engine is imported here."""
