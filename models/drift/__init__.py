"""Whether a stream of images differs from the target that a model was trained on."""
