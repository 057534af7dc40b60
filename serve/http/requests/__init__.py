"""What every request passes: its id, who may ask, its log line, and how its connection ends."""
