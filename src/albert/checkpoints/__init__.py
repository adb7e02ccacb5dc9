"""Model directories in the Hugging Face layout, TensorFlow checkpoints, warm starts and model cards."""
