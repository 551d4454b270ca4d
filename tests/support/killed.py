"""A process that dies at a chosen call."""

from engine.runs import storage


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def killed_after(monkeypatch, owner, name, calls):
    """Lets `owner.name` run `calls` times; the process dies at the next."""
    original, left = getattr(owner, name), iter(range(calls))

    def dies(*args, **kwargs):
        if next(left, None) is None:
            raise Killed
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, dies)


def killed_writing(monkeypatch, name, files):
    """Lets `files` files be written whose path holds `name`; the process dies at the next."""
    original, left = storage.write_atomic, iter(range(files))

    def dies(path, data):
        if name in str(path) and next(left, None) is None:
            raise Killed
        original(path, data)

    monkeypatch.setattr(storage, "write_atomic", dies)
