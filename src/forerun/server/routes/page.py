"""The page at `/`: files of this package, served as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from forerun.server.errors import ApiError

_FOLDER: Final = Path(__file__).parents[1] / "page"
_KINDS: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# Only the page's own files and API are allowed; a script that a model wrote cannot run.
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


async def index(_request: Request) -> Response:
    return _file("index.html")


async def asset(request: Request) -> Response:
    return _file(request.path_params["name"])


def _file(name: str) -> Response:
    """Return a file that the folder's listing has by this name, so that no path leads outside."""
    files = (path for path in _FOLDER.rglob("*") if path.suffix in _KINDS)
    found = {path.relative_to(_FOLDER).as_posix(): path for path in files}.get(name)
    if found is None:
        raise ApiError(404, f"the page has no file {name[:200]!r}; see /.", "not_here")
    return Response(found.read_bytes(), media_type=_KINDS[found.suffix], headers=_HEADERS)
