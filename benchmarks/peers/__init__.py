"""Peers, driven for comparison. Each module imports the peer when it is used, and says so when it is not there."""
