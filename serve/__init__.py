"""How a bundle is used: labelling folders and answering over HTTP; no torch anywhere."""
