"""A page, taken apart."""

from html.parser import HTMLParser

VOID = {"meta", "img", "source", "br"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; an element that is not closed is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def assert_self_contained(self) -> None:
        """Nothing is fetched, and no script runs."""
        assert not {"script", "link", "iframe", "object", "a"} & set(self.tags)
        for name, value in self.attributes:
            if name in ("src", "srcset", "href", "xlink:href"):
                assert value.startswith("data:image/png;base64,")
