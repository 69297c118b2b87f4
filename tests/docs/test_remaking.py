"""What was made with the embedded model says with which weights, and what is out of date is made again."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import todome_flowers
from pages import ROOT

FIRST = "c080832a61694cbe"  # weights: before them nothing said what it was made with


@pytest.fixture(scope="module")
def figures() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("figures")
    sys.modules.pop("figures", None)


def test_everything_was_made_with_the_weights_that_ship(figures: Any):
    shipped = todome_flowers.fingerprint()
    allowed = [{shipped}, {"unknown"}] if shipped == FIRST else [{shipped}]
    wrong = {made.path: figures.stamps(ROOT / made.path) for made in figures.MADE}
    assert {path: found for path, found in wrong.items() if found not in allowed} == {}


def test_every_file_that_carries_weights_is_known(figures: Any):
    """Whoever adds one adds it to the list, with the command that makes it."""
    folders = ("benchmarks/results/*", "docs/*.md", "docs/figures/*.*", "docs/hosts/*", "examples/*.*", "flowers/*.*")
    found = [path for folder in (*folders, "*.md", "integrations/*/*.*") for path in ROOT.glob(folder)]
    carrying = {path.relative_to(ROOT).as_posix() for path in found if path.is_file() and figures.stamps(path)}
    assert carrying <= {made.path for made in figures.MADE}


def test_the_fingerprint_is_that_of_the_files(tmp_path: Path):
    for part, content in (("unet", b"a"), ("vae", b"b")):
        (tmp_path / part).mkdir()
        (tmp_path / part / "diffusion_pytorch_model.safetensors").write_bytes(content)
    one = todome_flowers.fingerprint(tmp_path)
    (tmp_path / "vae/diffusion_pytorch_model.safetensors").write_bytes(b"c")
    assert len({one, todome_flowers.fingerprint(tmp_path), todome_flowers.fingerprint()}) == 3


@pytest.fixture
def small(figures: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three files that are made in no time, of which the second is up to date."""
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "DRAWN", ())
    monkeypatch.setattr(figures, "fill_pages", lambda: None)
    code = f"from pathlib import Path; Path('FILE').write_text('weights: {figures.shipped()}')"
    names = ("a.json", "b.json", "c.json")
    made = [figures.Made(name, f'-c "{code}"', minutes=1) for name in names]
    made += [figures.Made("d.json", "-c 1/0", gpu=True), figures.Made("page.md")]
    monkeypatch.setattr(figures, "MADE", made)
    (tmp_path / "a.json").write_text('{"weights": "0123456789abcdef"}')
    (tmp_path / "b.json").write_text(f'{{"weights": "{figures.shipped()}"}}')
    (tmp_path / "page.md").write_text("<!-- weights: unknown -->")
    return figures


def test_what_is_out_of_date_and_needs_no_gpu_is_made_again(small: Any, tmp_path: Path, capfd: Any):
    states = {made.path: small.state(made) for made in small.MADE}
    assert states == {
        "a.json": "made with 0123456789abcdef",
        "b.json": "up to date",
        "c.json": "missing",
        "d.json": "missing",
        "page.md": "made with unknown",
    }
    before = (tmp_path / "b.json").stat().st_mtime_ns
    small.make_again(small.MADE)
    shown = capfd.readouterr().out
    assert "1 of 2: a.json, about 1 minutes on two cores\n2 of 2: c.json" in shown
    assert [small.state(made) for made in small.MADE[:3]] == ["up to date"] * 3
    assert (tmp_path / "b.json").stat().st_mtime_ns == before
    small.make_again(small.MADE)
    assert capfd.readouterr().out == ""


def test_a_command_that_does_not_say_what_it_used_is_an_error(small: Any, tmp_path: Path):
    made = small.Made("a.json", "-c pass")
    with pytest.raises(SystemExit, match=r"a\.json is made with 0123456789abcdef although '-c pass' has run"):
        small.make_again([made])


def test_a_part_of_a_page_waits_for_its_results(figures: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = "One.\n\n<!-- waits for host.json\n## Two\n\n[two_tables.py host.json 2]\n\nThree.\n-->\n\nFour.\n"
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "tables_of", lambda script, results: ["| a |\n| b |", f"| {script} |\n| {results} |"])
    assert figures.filled(page) == page
    (tmp_path / "host.json").write_text("{}")
    shown = (
        "One.\n\n## Two\n\n<!-- two_tables.py host.json 2 -->\n\n| two_tables.py |\n| host.json |\n\nThree.\n\nFour.\n"
    )
    assert figures.filled(page) == figures.filled(shown) == shown
    assert figures.filled(shown.replace("| host.json |", "| old |\n| older |")) == shown
