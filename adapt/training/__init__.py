"""Algorithm 2: losses, networks, sampling, the loop and its checkpoints."""
