"""Replays as GIF or MP4; needs the extra `dgmarl[viz]`."""

import io
import tempfile
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dgmarl.errors import UsageError
from dgmarl.files import write_atomic

SUFFIXES = (".gif", ".mp4")
WIDTH = 480
"""Width in pixels."""

Rasterise = Callable[[str, int], bytes]
"""Converts an SVG and a width in pixels to a PNG."""


def require_movies(path: Path) -> None:
    """Raise UsageError if a package for this kind of movie is missing."""
    _rasteriser()
    if path.suffix == ".mp4":
        _writer()


def write_movie(
    frames: Sequence[str], path: Path, frames_per_s: float = 5.0, rasterise: Rasterise | None = None
) -> Path:
    """Write SVG frames as a movie; the suffix of the path decides between GIF and MP4."""
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"{path} ends in {path.suffix!r}, but a movie must end in {' or '.join(SUFFIXES)}."
        )
    encode = _gif if path.suffix == ".gif" else _mp4
    pictures = _pictures(frames, rasterise or _rasteriser())
    return write_atomic(path, encode(pictures, frames_per_s))


def _pictures(frames: Sequence[str], rasterise: Rasterise) -> list[np.ndarray]:
    """Frames `[height, width, 3]` of the first one's size, made even for video encoders."""
    from PIL import Image

    opened = [Image.open(io.BytesIO(rasterise(frame, WIDTH))).convert("RGB") for frame in frames]
    width, height = (2 * (length // 2) for length in opened[0].size)
    return [np.asarray(picture.crop((0, 0, width, height))) for picture in opened]


def _gif(pictures: list[np.ndarray], frames_per_s: float) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    first, *others = map(Image.fromarray, pictures)
    first.save(
        buffer,
        "GIF",
        save_all=True,
        append_images=others,
        duration=round(1000 / frames_per_s),
        loop=0,
    )
    return buffer.getvalue()


def _mp4(pictures: list[np.ndarray], frames_per_s: float) -> bytes:
    writer = _writer()
    # ffmpeg writes to a file in a subprocess; JAX's warning about forks does not apply to it.
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*fork\(\)")
        path = Path(folder) / "movie.mp4"
        writer.imwrite(
            path,
            np.stack(pictures),
            plugin="FFMPEG",
            fps=frames_per_s,
            codec="libx264",
            macro_block_size=2,
        )
        return path.read_bytes()


def _writer() -> Any:
    return _imported("imageio.v3", "imageio")


def _rasteriser() -> Rasterise:
    cairosvg = _imported("cairosvg", "cairosvg and the cairo library")
    return lambda svg, width: cairosvg.svg2png(bytestring=svg.encode(), output_width=width)


def _imported(module: str, what: str) -> Any:
    try:
        return import_module(module)
    except (ImportError, OSError):  # OSError: the system library is missing
        raise UsageError(
            f"Movies need {what}: run `pip install 'dgmarl[viz]'`, or write a page instead (--out "
            "replay.html)."
        ) from None
