"""The training loop, shared by pre-training and fine-tuning: updates, checkpoints, logs, the folder of a run."""
