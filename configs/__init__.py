"""Settings and models as data: files to copy and to change. They import `engine.settings` alone."""
