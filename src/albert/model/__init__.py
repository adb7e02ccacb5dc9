"""The network of the paper: factorized embedding, shared layers, heads, over packed sequences without padding."""
