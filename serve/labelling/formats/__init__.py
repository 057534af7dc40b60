"""The output formats of labelling, one file each."""
