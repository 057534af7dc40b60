"""The folder of a run and the tables in it."""
