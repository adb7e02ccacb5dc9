"""Fine-tuning and evaluation of any declared task, through the one training loop."""
