"""What a model is: networks and export (torch); images, bundle and predictor (no torch)."""
