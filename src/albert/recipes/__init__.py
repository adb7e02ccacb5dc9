"""What a run is asked for, as frozen values: pre-training, fine-tuning, the architecture, the optimizer."""
