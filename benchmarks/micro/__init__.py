"""The state alone, in process, without a network."""
