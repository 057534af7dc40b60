"""The run time environment of training: device, processes, random numbers, signals, progress."""
