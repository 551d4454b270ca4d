"""A page of HTML as a browser's parser finds it."""

import html.parser


class Page(html.parser.HTMLParser):
    """Addresses, text, alternative texts, scripts (attributes and text) and policy of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.text: list[str] = []
        self.alts: list[str] = []
        self.scripts: list[tuple[dict[str, str], list[str]]] = []
        self.policy = ""
        self._inside = False
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps what its attributes say."""
        self.alts += [value or "" for name, value in attrs if name == "alt"]
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        known = {name: value or "" for name, value in attrs}
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append((known, []))
        if known.get("http-equiv") == "Content-Security-Policy":
            self.policy = known["content"]

    def handle_endtag(self, tag: str) -> None:
        """No script goes on behind its end."""
        self._inside = False

    def handle_data(self, data: str) -> None:
        """Text that a reader sees, or that of a script."""
        if self._inside:
            self.scripts[-1][1].append(data)
        elif self.lasttag not in ("style", "script"):
            self.text.append(data)

    @property
    def code(self) -> list[tuple[dict[str, str], str]]:
        """Attributes and text of each script."""
        return [(attributes, "".join(text)) for attributes, text in self.scripts]

    @property
    def words(self) -> str:
        """The text that a reader sees, with single spaces."""
        return " ".join(" ".join(self.text).split())
