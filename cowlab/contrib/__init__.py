"""Preparation for the servers and pools that people fork with."""
