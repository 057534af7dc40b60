"""Open-set studies: the runs, how one is measured and scored, and the tables of the records."""
