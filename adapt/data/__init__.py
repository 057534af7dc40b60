"""Folders of images: scanning, reading, and the cache of their features."""
