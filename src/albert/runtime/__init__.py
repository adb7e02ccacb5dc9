"""The lowest room: errors, durable files, random streams, JSON files, journal, progress, devices, ranks."""
