"""Reward heads with a planted, known bias, on the embedded decoder."""
