"""Self-contained pages from Jinja2 templates: one file, no network, data that is never executed."""

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dgmarl.errors import UsageError

ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
"""Characters that could end a script block, as JSON writes them in any place of a string."""


def render(template: str, scripts: tuple[str, ...] = (), data: Any = None, **values: Any) -> str:
    """A page from a template that extends `base.html`.

    scripts: names of scripts of this package, run in this order after `common`.
    data: reaches the scripts as JSON in a block that browsers do not execute."""
    return _page(template, package_scripts(*scripts) if scripts else "", data, values)


def page(title: str, body: str, script: str = "", data: Any = None) -> str:
    """A page with a body that is HTML already."""
    return _page("plain.html", script, data, {"title": title, "body": Markup(body)})


def package_scripts(*names: str) -> str:
    """Scripts of this package as one, `common` first."""
    return "\n".join(asset(f"{name}.js") for name in ("common", *names))


def asset(name: str) -> str:
    """A style sheet or script of this package."""
    return (files("dgmarl.report") / "assets" / name).read_text(encoding="utf-8")


def as_json(data: Any) -> Markup:
    """JSON that may stand in a script block whatever its strings hold."""
    try:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise UsageError(
            "A page cannot show infinite or undefined numbers: leave out the results that hold "
            "them."
        ) from None
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    return Markup(text)


def _page(template: str, script: str, data: Any, values: dict[str, Any]) -> str:
    """The content security policy lets only this one script run, by its hash, and allows no request
    at all: nothing in the data, such as an environment's name, can become code."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; form-action 'none'; base-uri 'none'"
    )
    return (
        _templates()
        .get_template(template)
        .render(
            policy=policy,
            style=Markup(asset("page.css")),
            script=Markup(script),
            data=as_json(data),
            **values,
        )
    )


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("dgmarl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
