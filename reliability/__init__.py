"""The promises of README, put to the proof: each trial does one thing to the system, many times."""
