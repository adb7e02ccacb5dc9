"""Trials of the promises in docs/promises.md: each tries many times to break one of them."""
