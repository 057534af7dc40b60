"""The processes of `scda-adapt serve`: a supervisor, and workers that answer on one socket."""
