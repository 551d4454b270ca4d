"""Assay's checkpoint folder: its card, the layouts of its tensors, and restoring onto a mesh."""
