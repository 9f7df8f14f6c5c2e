"""HTML as a test reads it: what is shown, where links lead, and whether it is sound."""

from __future__ import annotations

from html.parser import HTMLParser

import httpx

VOID = {"meta", "link", "img", "input", "br", "hr"}
SVG_LEAVES = {"rect", "line", "polyline", "polygon"}


class Page(HTMLParser):
    """A parsed page. Fails on tags that do not match, on scripts or styles inside it, and on handlers."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(convert_charrefs=True)
        assert answer.headers["content-type"] == "text/html; charset=utf-8", answer.text[:500]
        self.status = answer.status_code
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.headings: list[str] = []
        self.labels: set[str] = set()
        self.inputs: dict[str, dict[str, str | None]] = {}
        self.pictures: list[str] = []
        self._open: list[str] = []
        self._text: list[str] = []
        self.feed(answer.text)
        self.close()
        assert self._open == [], self._open
        assert len(set(self.ids)) == len(self.ids), "an id is there twice"

    @property
    def text(self) -> str:
        """What can be read, white space folded."""
        return " ".join("".join(self._text).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert not [name for name in found if name.startswith("on") or name == "style"], attrs
        if tag == "script":
            assert set(found) == {"src", "defer"}, attrs
        assert tag != "style"
        if tag == "a":
            self.links.append(found["href"] or "")
        if found.get("src") or (tag == "link" and found.get("href")):
            self.loaded.append(found.get("src") or found["href"] or "")
        if found.get("id"):
            self.ids.append(found["id"] or "")
        if tag in ("h1", "h2"):
            self.headings.append(tag)
        if tag == "label" and found.get("for"):
            self.labels.add(found["for"] or "")
        if tag == "input" and found.get("id"):
            self.inputs[found["id"] or ""] = found
        if tag == "svg":
            assert found["role"] == "img", attrs
            self.pictures.append(found["aria-label"] or "")
        if tag == "th":
            assert found["scope"] in ("row", "col"), attrs
        if tag not in VOID and tag not in SVG_LEAVES - {"rect"}:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID and tag not in SVG_LEAVES - {"rect"}:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> does not match"
        if tag in ("td", "th", "dt", "dd", "li", "p", "h1", "h2"):
            self._text.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] not in ("script", "title"):
            self._text.append(data)
