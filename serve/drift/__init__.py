"""The outputs of a labelling against what the model was trained on: reading them, and the page."""
