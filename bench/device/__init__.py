"""How close Assay comes to the limit of one accelerator, measured with random weights."""
