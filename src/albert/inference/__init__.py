"""Inference: from text to predictions."""
