"""The network of the paper: factorized embedding, shared layers, heads; sequences packed without padding."""
