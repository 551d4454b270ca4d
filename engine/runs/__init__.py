"""The run folder: its schema, its parts, its manifest. No jax, no numbers computed."""
