"""Export of trained networks to a bundle: class statistics, files, parity check."""
