"""How many classes are new: the estimators of k, one file each."""
