"""A whole cluster in one thread, on a false network and a false clock, from one seed.

In the middle the true `SchedulerState`, validated after each step; around it true worker machines and true tables of
futures. People submit, release, cancel, retry and leave; workers die, pause and come back; links break. When all is
done, every future must have ended rightly, and after release nothing may be left.

    python -m tests.simulation --seed 42 [--steps 200] [--profile faulty] [--trace] [--shrink]
    python -m tests.simulation --seeds 0:100000 --jobs 2 --resume seeds.txt
"""

from tests.simulation.search import simulate
from tests.simulation.truth import SimulationFailed

__all__ = ["SimulationFailed", "simulate"]
