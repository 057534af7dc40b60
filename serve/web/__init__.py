"""The parts that all pages share: security headers, packaged files, styles."""
