"""Movies of replays: the right pictures in the right order; with the real rasteriser and encoder
where they are installed."""

import io

import pytest
from PIL import Image, ImageSequence

from dgmarl.cli import main
from dgmarl.errors import UsageError
from dgmarl.report.movie import write_movie

COLOURS = ("#ff0000", "#00ff00", "#0000ff")
FRAMES = [
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 33 21">'
    f'<rect width="33" height="21" fill="{colour}"/></svg>'
    for colour in COLOURS
]


def plain(svg: str, width: int) -> bytes:
    """One colour, the first that is named; an odd width."""
    buffer = io.BytesIO()
    Image.new("RGB", (33, 21), svg.partition('fill="')[2][:7]).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_gif_shows_every_frame_in_order(tmp_path):
    path = write_movie(FRAMES, tmp_path / "movie.gif", rasterise=plain)
    shown = [frame.convert("RGB") for frame in ImageSequence.Iterator(Image.open(path))]
    assert [f"#{bytes(frame.getpixel((5, 5))).hex()}" for frame in shown] == list(COLOURS)
    assert shown[0].size == (32, 20)


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\.gif or \.mp4"):
        write_movie(FRAMES, tmp_path / "movie.avi", rasterise=plain)


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_with_the_real_tools(tmp_path, suffix):
    try:
        import cairosvg  # noqa: F401
        from imageio import v3 as imageio
    except (ImportError, OSError):
        pytest.skip("the extra dgmarl[viz] is not installed, so no movies are made")
    path = write_movie(FRAMES, tmp_path / f"movie{suffix}")
    shown = imageio.imread(path)
    assert len(shown) == 3
    assert shown[0, 5, 5].argmax() == 0
    assert shown[2, 5, 5].argmax() == 2


def test_without_the_extra_watch_says_what_to_install(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "cairosvg", None)
    with pytest.raises(SystemExit) as stop:
        main(["watch", "matrix/climbing", "--episodes", "1", "--out", str(tmp_path / "movie.gif")])
    assert stop.value.code == 2
    assert "dgmarl[viz]" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
