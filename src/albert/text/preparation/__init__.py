"""Documents to token shards: planned, shared out, put together."""
