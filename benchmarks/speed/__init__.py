"""What the measurements of speed and memory share: pass or fail lines, servers, load."""
