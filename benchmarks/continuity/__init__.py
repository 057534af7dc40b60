"""Chains of trainings, each after the one before, and what they keep of its names."""
