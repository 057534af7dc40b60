"""What a run stands on: device, processes, random numbers, signals, progress."""
