"""The promises of docs/promises.md, put to the proof: each trial does one thing to the system, many times."""
