"""What the commands share: flags, config files, one-line errors, and calls into the engine."""
