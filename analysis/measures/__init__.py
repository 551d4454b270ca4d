"""What chapters compute from the scores of a run: of lists and of words."""
