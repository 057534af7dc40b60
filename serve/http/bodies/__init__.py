"""How the body of a request becomes image files, within limits that hold while it is read."""
