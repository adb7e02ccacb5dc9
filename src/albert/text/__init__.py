"""From text to token shards: corpus readers, sentences, the SentencePiece tokenizer, preparation. No torch here."""
