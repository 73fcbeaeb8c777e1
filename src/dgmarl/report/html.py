"""Self-contained pages: one file, no network, data that is never executed."""

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from typing import Any


def asset(name: str) -> str:
    """A style sheet or script that ships with the package."""
    return (files("dgmarl.report") / "assets" / name).read_text(encoding="utf-8")


def scripts(*names: str) -> str:
    """Scripts that ship with the package as one, after what all of them use."""
    return "\n".join(asset(f"{name}.js") for name in ("common", *names))


def page(title: str, body: str, script: str = "", data: Any = None) -> str:
    """A complete HTML page. `data` reaches `script` as JSON in an inert block.

    The content security policy lets only this one script run (by its hash) and allows no request at
    all, so nothing that stands in the data, an environment's name say, can become code."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{asset('page.css')}</style></head>\n<body>\n{body}\n"
        f'<script type="application/json" id="data">{_inert(data)}</script>\n'
        f"<script>{script}</script>\n</body></html>\n"
    )


def _inert(data: Any) -> str:
    """JSON in which no tag can end the block it stands in."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
