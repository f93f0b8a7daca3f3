"""Steps on one time axis: the hosts' clocks, and when each step was reduced."""
