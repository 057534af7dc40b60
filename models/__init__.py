"""Models: networks and export (with torch); images, bundle and predictor (without torch)."""
