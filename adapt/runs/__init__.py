"""A run's folder and the tables in it."""
