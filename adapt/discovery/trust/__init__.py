"""How far to trust a run: measures that need no label, and what they say about its accuracy."""
