"""The use of a bundle: labelling folders and serving over HTTP, without torch."""
