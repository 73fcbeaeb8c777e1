"""Accepts pictures that only draw: SVG shapes and text, without scripts, links, styles or other
files.

Pictures of a replay are put into a page as they are. The page's content security policy stops
scripts; this check also stops what a policy does not, such as links and page redirections."""

from xml.etree import ElementTree

NAMESPACE = "{http://www.w3.org/2000/svg}"
ELEMENTS = frozenset(
    "svg g defs symbol use marker clipPath mask pattern linearGradient radialGradient stop "
    "rect circle ellipse line polyline polygon path text tspan textPath title desc".split()
)


def svg_problem(picture: str) -> str | None:
    """Why a text is not a plain SVG picture, or None if it is one."""
    if "<!" in picture or "<?" in picture:
        return "has a declaration, a comment or a processing instruction"
    try:
        root = ElementTree.fromstring(picture)
    except (ElementTree.ParseError, ValueError, RecursionError):
        return "is not well-formed XML"
    if root.tag.removeprefix(NAMESPACE) != "svg":
        return "is not an SVG document"
    for node in root.iter():
        name = str(node.tag).removeprefix(NAMESPACE)
        if name not in ELEMENTS:
            return f"has the element {name[:40]!r}"
        for attribute, value in node.attrib.items():
            if _reaches_out(attribute.rpartition("}")[2].lower(), value.lower()):
                return f"has the attribute {attribute[:40]!r}"
    return None


def _reaches_out(attribute: str, value: str) -> bool:
    """Event handlers, and references to anything outside the picture."""
    if attribute.startswith("on"):
        return True
    if attribute == "href":
        return not value.startswith("#")
    # A CSS escape could hide a reference, and pictures have no other use for a backslash.
    return "\\" in value or value.count("url(") != value.replace(" ", "").count("url(#")
