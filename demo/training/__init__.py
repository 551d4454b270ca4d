"""Training of the embedded models' heads; needs torch."""
