"""Proof that the proof works: defects that the simulator must find. It imports nothing of shunter by itself."""
