"""How parameters move: LAMB and AdamW, parameter groups, learning-rate schedules."""
