"""Other papers' methods, each written from its description, on the features that scda sees."""
