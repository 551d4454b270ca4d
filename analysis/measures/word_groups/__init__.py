"""Groups of words: where they stand, against one another and against placebo kinds."""
