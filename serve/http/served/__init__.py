"""What is served: one loaded bundle, pinned, and the switch to another one."""
