"""The run folder: its schema, its results and their parts. No jax, no numbers computed."""
