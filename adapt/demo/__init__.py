"""The demo: its data, its backbone and its run."""
