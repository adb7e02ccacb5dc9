"""The ground floor: errors, durable files, named random streams, strict JSON, journal, progress, devices, processes."""
