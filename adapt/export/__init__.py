"""From trained networks to a bundle: final statistics, files, parity."""
