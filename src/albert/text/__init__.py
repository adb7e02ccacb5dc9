"""From text to token shards: corpus readers, sentences, the tokenizer, preparation. No torch here."""
