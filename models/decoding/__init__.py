"""Decode images within limits of memory and time: cheap ones at once, others in processes."""
