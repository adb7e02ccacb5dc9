"""What everything else uses: errors, durable files, random streams, JSON files, journal, progress, devices, ranks."""
