"""The page of `assay serve`: ask reward models, watch every token rank, keep what was computed."""
