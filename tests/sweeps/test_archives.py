"""Runs as one piece of data: what is packed arrives, and nothing gets out of its folder."""

import io
import stat
import zipfile

import pytest

from dgmarl.config.resolve import resolve
from dgmarl.errors import RunError
from dgmarl.sweeps.archives import newest_checkpoint, pack, unpack
from dgmarl.sweeps.planned import PlannedRun
from tests.tiny import GIFT, write_result

CONFIG = resolve(GIFT, "ippo-local", {}, seeds=1, steps=100, graph="oracle")


def run_in(root) -> PlannedRun:
    return PlannedRun("run", CONFIG, root / "results" / "run.json", root / "folder")


def write(root, files) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def contents(root) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text() for path in files}


def test_a_run_arrives_as_it_was_sent_and_older_checkpoints_go(tmp_path):
    sent = {
        "folder/config.yaml": "new",
        "folder/metrics.jsonl": "new",
        "folder/checkpoints/00000002/state/a": "2",
        "folder/checkpoints/00000003/state/a": "3",
    }
    hidden = {"folder/.lock": "", "folder/checkpoints/00000004.writing/state/a": "4"}
    write(tmp_path / "there", {**sent, **hidden})
    (tmp_path / "there" / "folder" / "link").symlink_to("/etc/passwd")
    archive = pack(run_in(tmp_path / "there"))
    assert newest_checkpoint(archive, run_in(tmp_path)) == 3
    here = tmp_path / "here"
    kept = {"folder/.result.json.lock": "claim"}
    write(here, {**kept, "folder/config.yaml": "old", "folder/checkpoints/00000001/state/a": "1"})
    unpack(archive, run_in(here))
    assert contents(here) == {**kept, **sent}


def test_the_result_of_a_finished_run_arrives_at_its_place(tmp_path):
    write(tmp_path / "there", {"folder/config.yaml": "new"})
    write_result(run_in(tmp_path / "there"))
    archive = pack(run_in(tmp_path / "there"))
    unpack(archive, run_in(tmp_path / "here"))
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
    assert run_in(tmp_path / "here").state == "done"
    assert newest_checkpoint(archive, run_in(tmp_path)) > 1e9


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "folder/../../outside",
        "/outside",
        "folder//a",
        "other",
        "folder/",
        "folder/.lock",
    ],
)
def test_names_that_lead_elsewhere_are_refused_before_anything_is_written(tmp_path, name):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("folder/config.yaml", "new")
        archive.writestr(name, "outside")
    with pytest.raises(RunError, match="damaged"):
        unpack(buffer.getvalue(), run_in(tmp_path / "here"))
    assert contents(tmp_path) == {}


def test_a_link_arrives_as_a_file_and_damage_is_told_in_a_sentence(tmp_path):
    buffer, link = io.BytesIO(), zipfile.ZipInfo("folder/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    run = run_in(tmp_path)
    unpack(buffer.getvalue(), run)
    assert not (run.folder / "link").is_symlink()
    with pytest.raises(RunError, match="The archive of run is damaged"):
        unpack(b"no archive", run)
    with pytest.raises(RunError, match="The archive of run is damaged"):
        newest_checkpoint(b"no archive", run)
