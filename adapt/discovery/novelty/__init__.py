"""Which target images are new: three witnesses, one decision, in a whitened space."""
