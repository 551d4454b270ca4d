"""Settings as data; the only part of the engine that is imported here is `engine.settings`."""
