"""Bugs that tests plant, to see that they are found."""


def instead(owner, name: str, change):
    """What plants `change(right, *its arguments)` in place of the function `owner.name`."""

    def plant(patch) -> None:
        right = getattr(owner, name)
        patch.setattr(owner, name, lambda *args, **kw: change(right, *args, **kw))

    return plant
