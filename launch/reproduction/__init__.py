"""The stages of launch.reproduce: what is asked for, the models' readings, the work, the page."""
