"""HTTP server for one model, with limits on memory, queue and time."""
