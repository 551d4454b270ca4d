from tests.tiny_fixtures import checkpoint, compiled_once  # noqa: F401
