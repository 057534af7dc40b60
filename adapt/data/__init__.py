"""Folders of images: scanned, read, and turned into cached features."""
