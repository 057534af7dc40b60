"""Shared parts of the measurements of speed and memory: result lines, servers, load."""
