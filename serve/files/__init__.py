"""Class folders and target images, for labelling and review."""
