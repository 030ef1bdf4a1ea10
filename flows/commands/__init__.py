"""One module per group of commands. Each has `register(app)`; heavy imports stay inside the command functions."""
