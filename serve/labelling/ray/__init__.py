"""Labelling on a cluster with Ray Data."""
