"""What every page shares: headers, assets, styles."""
