"""Seconds in words."""

_UNITS = (("days", 86_400, 2 * 86_400), ("h", 3600, 7200), ("min", 60, 180))


def in_hours(seconds: float) -> str:
    """`3.4 s`, `12 min`, `5.1 h`: two digits, since no more is known of an estimate."""
    for unit, length, least in _UNITS:
        if seconds >= least:
            value = seconds / length
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
