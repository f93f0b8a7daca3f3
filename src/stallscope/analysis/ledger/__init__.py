"""Account for the time of steps, epochs and the whole job."""
