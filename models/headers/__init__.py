"""What the header of an image says about the work of decoding it, and bounds on that work."""
