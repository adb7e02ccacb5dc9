"""BERT's tokenizer, which the Chinese models have."""
