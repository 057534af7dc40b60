"""The report of a run, written from the files of the run alone."""
