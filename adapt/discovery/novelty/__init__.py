"""Which target images are new: two witnesses, one decision, in a whitened space."""
