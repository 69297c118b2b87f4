"""`todome install`: what it puts into others, what it refuses, and that it takes away exactly what it put there."""

import errno
import json
import os
import zipfile
from pathlib import Path

import pytest
from fresh import run_fresh
from hatchling.builders.wheel import WheelBuilder

from todome import __version__
from todome.tools.install import COMFYUI, MARKER, PACKAGE, WEBUI, install, integration_for

LINKS = pytest.mark.skipif(os.name == "nt", reason="links need a right of their own there")
PUT_INTO = {
    "webui": (
        "extensions/todome-extension",
        "AUTOMATIC1111's stable-diffusion-webui or Forge",
        "scripts/todome_webui.py",
    ),
    "comfyui": ("custom_nodes/todome-extension", "ComfyUI", "__init__.py"),
}


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    """A folder with what looks like a webui and a ComfyUI."""
    for name in ("webui/modules", "webui/extensions", "comfyui/comfy", "comfyui/custom_nodes"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "webui/launch.py").touch()
    (tmp_path / "comfyui/main.py").touch()
    return tmp_path


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("host", PUT_INTO)
def test_it_is_copied_and_taken_away_again(run, hosts, host):
    before = tree(hosts)
    folder, title, entry = PUT_INTO[host]
    told = run("install", f"--{host}", host)
    assert (told.exit_code, told.stdout) == (0, f"Copied to {host}/{folder}. Restart {title}.\n")
    put = hosts / host / folder
    assert (put / entry).is_file()
    assert (put / "vendor/todome/patch.py").is_file()
    assert not any("__pycache__" in path for path in tree(put))
    left_out = {path.name for path in PACKAGE.iterdir()} - {path.name for path in (put / "vendor/todome").iterdir()}
    assert left_out - {"__pycache__"} == {"__main__.py", "tomesd.py", "tools"}
    marker = json.loads((put / MARKER).read_text())
    assert marker["todome"] == __version__
    assert sorted([*marker["files"], MARKER]) == [path for path in tree(put) if (put / path).is_file()]
    told = run("install", f"--{host}", host, "--uninstall")
    assert (told.exit_code, told.stdout) == (0, f"Removed: {host}/{folder}. Restart {title}.\n")
    assert tree(hosts) == before


def test_both_at_once_and_the_home_folder(run, hosts, monkeypatch):
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(hosts))
    assert run("install", "--webui", "~/webui", "--comfyui", "comfyui").exit_code == 0
    assert (hosts / "webui/extensions/todome-extension").is_dir()
    assert (hosts / "comfyui/custom_nodes/todome-extension").is_dir()


@LINKS
def test_it_is_linked(run, hosts):
    before = tree(hosts)
    told = run("install", "--webui", "webui", "--link")
    assert told.stdout == f"Linked to webui/{PUT_INTO['webui'][0]}. Restart {PUT_INTO['webui'][1]}.\n"
    put = hosts / "webui/extensions/todome-extension"
    assert (put / "vendor/todome/patch.py").resolve() == (PACKAGE / "patch.py").resolve()
    assert not (put / "vendor/todome/tools").exists()
    assert (put / "scripts").is_symlink()
    assert run("install", "--webui", "webui", "--uninstall").exit_code == 0
    assert tree(hosts) == before
    assert (PACKAGE / "patch.py").is_file()


def test_it_is_installed_again_over_itself_or_all_stays(put, run, hosts, monkeypatch):
    outdated = put / "scripts/todome_webui.py"
    outdated.write_text("of another version")
    (put / "scripts/__pycache__").mkdir()
    (put / "scripts/__pycache__/todome_webui.pyc").touch()
    before = tree(hosts)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as failing:
        failing.setattr("shutil.copytree", full)
        assert run("install", "--webui", "webui").stderr.startswith("Error: The disk is full.")
    assert tree(hosts) == before
    assert run("install", "--webui", "webui").exit_code == 0
    assert outdated.read_text() != "of another version"
    assert os.listdir(put.parent) == ["todome-extension"]


def test_files_of_others_stay(run, hosts, refused):
    run("install", "--webui", "webui")
    put = hosts / "webui/extensions/todome-extension"
    (put / "mine.txt").write_text("a user's own")
    assert "Move mine.txt elsewhere first." in refused("install", "--webui", "webui")
    told = run("install", "--webui", "webui", "--uninstall").stdout
    assert told.startswith("Removed: webui/extensions/todome-extension, but for files that are not todome's.")
    assert tree(put) == ["mine.txt"]


def made_by_another(hosts: Path) -> None:
    (hosts / "webui/extensions/todome-extension").mkdir()


def read_only(hosts: Path) -> None:
    """Root may write everywhere but there."""
    (hosts / "comfyui/custom_nodes").rmdir()
    (hosts / "comfyui/custom_nodes").symlink_to("/proc")


@pytest.mark.parametrize(
    ("prepare", "words", "said"),
    [
        (made_by_another, "--webui webui", "folder='webui/extensions/todome-extension' cannot be used. Allowed: one "),
        (read_only, "--comfyui comfyui", "comfyui='comfyui' cannot be written to "),
        (
            id,
            "--webui webui --uninstall",
            "webui='webui' cannot be used. Allowed: a folder into which todome was ",
        ),
        *(
            (id, f"--{host} {path} {more}", f"{host}={path!r} cannot be used. Allowed: the folder of ")
            for host, path in [("webui", "nowhere"), ("webui", "."), ("webui", "comfyui"), ("comfyui", "webui")]
            for more in ("", "--uninstall")
        ),
    ],
)
def test_what_is_refused(refused, hosts, prepare, words, said):
    prepare(hosts)
    before = tree(hosts)
    assert refused("install", *words.split()).startswith(said)
    assert tree(hosts) == before


@pytest.mark.parametrize(
    ("words", "named"), [("", "--webui or --comfyui"), ("--webui webui --link --uninstall", "--link and --uninstall")]
)
def test_options_that_mean_nothing(refused, hosts, words, named):
    assert refused("install", *words.split(), code=2).startswith(f"Invalid value for {named}: ")


def test_a_copy_without_integrations():
    with pytest.raises(ValueError, match=r"^todome='.+' cannot be used\. Allowed: .* holds the integration for "):
        integration_for(WEBUI, sources=())


ALONE = """
import sys
sys.path.insert(0, {vendor!r})
import todome
from ldm.modules.diffusionmodules.openaimodel import UNetModel  # which takes less time to import than diffusers
unet = UNetModel(
    image_size=8, in_channels=4, out_channels=4, model_channels=32, num_res_blocks=1, attention_resolutions=[1],
    channel_mult=(1,), num_heads=2, use_spatial_transformer=True, context_dim=8, use_checkpoint=False,
)
print(todome.__file__)
print(len(str(todome.apply(unet, todome.Downsample(2)))) > 0, "todome.tools" in sys.modules)
todome.remove(unet)
try:
    todome.bench
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize("link", [False, pytest.param(True, marks=[LINKS, pytest.mark.thorough])])
def test_the_copy_is_the_core_and_works_alone(hosts, link):
    folder = install(COMFYUI, hosts / "comfyui", link)
    done = run_fresh(ALONE.format(vendor=str(folder / "vendor")))
    assert done.returncode == 0, done.stderr
    file, works, says = done.stdout.splitlines()
    assert Path(file) == folder / "vendor/todome/__init__.py"
    assert works == "True False"
    assert says == "No module named 'todome.tools'"


@pytest.fixture
def put(hosts: Path) -> Path:
    """A webui into which todome was installed, and something precious beside it."""
    (hosts / "precious.txt").write_text("a user's own")
    return install(WEBUI, hosts / "webui")


MARKERS = [
    *({"files": [name]} for name in ("../../../precious.txt", "/etc/passwd", "scripts/../../x", "out/precious.txt")),
    *({"files": [name]} for name in ("..", ".", "", 1)),
    *("", [], {}, {"files": 3}),
]


@LINKS
@pytest.mark.parametrize("more", [(), ("--uninstall",)])
@pytest.mark.parametrize("marker", MARKERS, ids=str)
def test_a_marker_that_lists_what_is_outside_or_cannot_be_read(refused, hosts, put, marker, more):
    (put / "out").symlink_to(hosts, target_is_directory=True)
    (put / MARKER).write_text(json.dumps(marker) if marker != "" else "")
    before = tree(hosts)
    text = refused("install", "--webui", "webui", *more)
    assert text.startswith(f"folder='webui/{PUT_INTO['webui'][0]}' cannot be used. ")
    assert "nothing was removed" in text
    assert tree(hosts) == before
    assert (hosts / "precious.txt").is_file()


@LINKS
def test_of_a_link_the_link_alone_is_removed(run, hosts, put):
    (hosts / "folder").mkdir()
    (hosts / "folder/mine.txt").touch()
    (put / "file").symlink_to(hosts / "precious.txt")
    (put / "link").symlink_to(hosts / "folder", target_is_directory=True)
    marker = json.loads((put / MARKER).read_text())
    (put / MARKER).write_text(json.dumps({**marker, "files": [*marker["files"], "file", "link"]}))
    assert run("install", "--webui", "webui", "--uninstall").exit_code == 0
    assert not put.exists()
    assert (hosts / "precious.txt").read_text() == "a user's own"
    assert (hosts / "folder/mine.txt").is_file()


@LINKS
@pytest.mark.parametrize("linked", ["", MARKER])
@pytest.mark.parametrize("more", [(), ("--uninstall",)])
def test_a_folder_or_a_marker_that_is_a_link(refused, hosts, put, linked, more):
    elsewhere = (put / linked).rename(hosts / "elsewhere")
    (put / linked).symlink_to(elsewhere, target_is_directory=not linked)
    assert " cannot be used. Allowed: " in refused("install", "--webui", "webui", *more)
    assert (put / "scripts/todome_webui.py").is_file()


def test_a_folder_in_place_of_a_file_stays(run, put):
    (put / "scripts/todome_webui.py").unlink()
    (put / "scripts/todome_webui.py").mkdir()
    (put / "scripts/todome_webui.py/mine.txt").touch()
    assert run("install", "--webui", "webui", "--uninstall").exit_code == 0
    assert tree(put) == ["scripts", "scripts/todome_webui.py", "scripts/todome_webui.py/mine.txt"]


def test_a_wheel_holds_the_integrations(tmp_path):
    root = Path(__file__).parents[2]
    (wheel,) = WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(wheel).namelist()
    assert "todome/integrations/webui/scripts/todome_webui.py" in names
    assert "todome/integrations/comfyui/__init__.py" in names
    assert not any("__pycache__" in name for name in names)
