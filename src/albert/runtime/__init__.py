"""The ground floor: errors, durable files, random streams, strict JSON, journal, progress, devices, ranks."""
