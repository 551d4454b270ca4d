"""What the steps of launch.reproduce need: a call, its plan, sources, runs and page."""
