"""Commands: flags -> settings -> one call. `launch/__main__.py` lists them."""
