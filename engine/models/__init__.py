"""The networks: decoder, reward heads, reward models and language models; no I/O."""
