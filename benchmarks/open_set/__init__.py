"""Open-set studies: which runs, how one is measured and scored, and the tables of the records."""
