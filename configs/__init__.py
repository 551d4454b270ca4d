"""Settings as data: of the engine, the settings alone are imported here."""
