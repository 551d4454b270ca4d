import contextlib
@contextlib.contextmanager
def nothing():
    yield None
@contextlib.contextmanager
def object_store(name):
    yield None
