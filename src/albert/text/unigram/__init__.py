"""ALBERT's own tokenizer: a unigram vocabulary by SentencePiece, and its files."""
