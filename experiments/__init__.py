"""The experiments: one file per published claim."""
