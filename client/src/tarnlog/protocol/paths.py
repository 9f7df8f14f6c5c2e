"""Paths of data files, relative to their table: when two are the same file, and which ones a commit may add.

A path in the log is a URI reference: it is percent-decoded exactly once, never again. A name that still looks encoded
after that is only a strange name. `path_key` runs for every file action, so the usual path costs three substring scans.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

MAX_PATH_BYTES = 1024
LOG_FOLDER = "_transaction_log"
CATALOG_FOLDER = "_catalog"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ABSOLUTE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
# Every component starts with a letter or digit, so it is neither '.', '..', nor one of the reserved folders.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]*(?:/[A-Za-z0-9][A-Za-z0-9._=-]*)*\Z")


def path_key(path: str) -> str:
    """What identifies the file: two paths with equal keys are the same object.

    Absolute URIs, which only adopted logs contain, are decoded and otherwise left alone. `..` is left alone as well:
    in an object store it is a name like any other. Escapes that are not UTF-8 keep the path as it is written.
    """
    if "%" not in path and "//" not in path and "./" not in path and path[-2:] != "/.":
        return path
    decoded = _decoded(path)
    if decoded is None:
        decoded = path
    if _ABSOLUTE_URI.match(path):
        return decoded
    root = "/" if decoded.startswith("/") else ""
    return root + "/".join(part for part in decoded.split("/") if part not in ("", "."))


def check_new_path(path: str) -> str | None:
    """What is wrong with a path that a commit wants to add, as a sentence that says what to do; None if nothing."""
    if len(path) <= MAX_PATH_BYTES and _PLAIN.match(path):
        return None
    if not path:
        return "The path is empty: name a file inside the table."
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "The path contains a lone surrogate, which is no character: send valid Unicode."
    if size > MAX_PATH_BYTES:
        return f"The path is {size} bytes long in UTF-8: use at most {MAX_PATH_BYTES}."
    if _BAD_ESCAPE.search(path):
        return "The path has a '%' that starts no escape: write a literal percent sign as %25."
    decoded = _decoded(path)
    if decoded is None:
        return "The path's percent-escapes are not UTF-8: encode each byte of the UTF-8 name."
    return _check_decoded(path, decoded)


def check_prefix(prefix: str) -> str | None:
    """What is wrong with a prefix of the names of new files, as a sentence; None if nothing. Empty is the whole table.

    A prefix may end anywhere, so it is fine if something behind it is a file's name, and if it leads out by itself
    nowhere.
    """
    if not prefix:
        return None
    fault = check_new_path(prefix + "f")
    if fault is None and not prefix.endswith("/"):
        fault = check_new_path(prefix)
    return fault


def _check_decoded(path: str, decoded: str) -> str | None:
    if any(unicodedata.category(char) == "Cc" for char in decoded):
        return "The path contains a control character: remove it."
    if "\\" in decoded:
        return "The path contains a backslash: separate folders with '/'."
    # The written form is checked too: a reader may resolve the URI before it decodes it.
    if decoded.startswith("/") or _SCHEME.match(path) or _SCHEME.match(decoded):
        return "The path is absolute: give it relative to the table, without a leading '/', scheme or drive."
    parts = decoded.split("/")
    if ".." in parts:
        return "The path contains '..': name the file by its own folders inside the table."
    if parts[-1] in ("", "."):
        return "The path names a folder: end it with the name of a file."
    # Case is ignored because the file systems of some machines ignore it.
    first = next(part for part in parts if part not in ("", ".")).casefold()
    if first == LOG_FOLDER:
        return f"The path leads into {LOG_FOLDER}, which belongs to the log: put data files elsewhere."
    if first.startswith(CATALOG_FOLDER):
        return f"The path starts with {CATALOG_FOLDER}, which is reserved: put data files elsewhere."
    return None


def _decoded(path: str) -> str | None:
    if "%" not in path:
        return path
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        return None
