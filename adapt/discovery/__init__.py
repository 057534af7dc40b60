"""Algorithm 1: which target images are new, how many classes they hold, and which."""
