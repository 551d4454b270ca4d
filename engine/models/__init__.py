"""The networks: what they are (config), the decoder, the reward heads, and both passes."""
