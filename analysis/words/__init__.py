"""Word lists, and matching them against the tokens of a vocabulary."""
