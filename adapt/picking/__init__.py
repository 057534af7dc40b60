"""The target images whose label would help most."""
