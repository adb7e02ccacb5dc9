"""Masked language modelling and sentence order: segments, masks, batches, objective, recipes."""
