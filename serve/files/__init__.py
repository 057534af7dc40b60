"""Files that both labelling and review handle: class folders, target images."""
