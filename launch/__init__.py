"""Commands: flags -> settings -> one call."""
