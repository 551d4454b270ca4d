"""A process that dies at a chosen call."""


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def killed_after(monkeypatch, owner, name, calls, error=Killed):
    """Lets `owner.name` run `calls` times; the process dies at the next, or has an `error`."""
    original, left = getattr(owner, name), iter(range(calls))

    def dies(*args, **kwargs):
        if next(left, None) is None:
            raise error
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, dies)
