"""Weights: Hugging Face safetensors in (hf), Assay's orbax checkpoints in and out (store)."""
