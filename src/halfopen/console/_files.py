"""The page's own files, and the headers that keep everything else out."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["SECURITY_HEADERS", "file_response"]

_TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
_IMPORT_MAP = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)

SECURITY_HEADERS = {  # of whatever says nothing else about itself
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


@cache
def _static() -> dict[str, tuple[bytes, str, str]]:
    """Return every file as (content, type, tag); nothing else can be asked for."""
    found: dict[str, tuple[bytes, str, str]] = {}

    def add(folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                add(entry, f"{prefix}{entry.name}/")
            else:
                data = entry.read_bytes()
                suffix = "." + entry.name.rpartition(".")[2]
                kind = _TYPES.get(suffix) or mimetypes.guess_type(entry.name)[0] or "text/plain"
                tag = '"' + hashlib.sha256(data).hexdigest()[:32] + '"'
                found[prefix + entry.name] = (data, f"{kind}; charset=utf-8" if "svg" not in kind else kind, tag)

    add(files("halfopen.console") / "static", "")
    return found


@cache
def content_security_policy() -> str:
    """Return the policy of the page: own files only, and the one import map by its hash."""
    page = _static()["index.html"][0].decode()
    found = _IMPORT_MAP.search(page)
    assert found is not None
    digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def file_response(request: Request, path: str) -> Response:
    """Return a file of the page, or say that it has not changed."""
    known = _static().get(path)
    if known is None:
        return Response("not found", 404, media_type="text/plain")
    data, kind, tag = known
    headers = {"etag": tag, "cache-control": "no-cache"}
    if path == "index.html":
        headers["content-security-policy"] = content_security_policy()
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, headers={**headers, "content-type": kind})
