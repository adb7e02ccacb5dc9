"""How parameters move: LAMB and AdamW, parameter groups."""
