"""Training agents with bonuses: what a run is made of, the loop, and what it leaves behind."""
