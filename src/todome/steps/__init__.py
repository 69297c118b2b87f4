"""When: the step of a run, whether the window is open, and the phase."""
