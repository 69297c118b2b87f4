"""What the documentation quotes is what was measured, and what it shows is what the code draws."""

import importlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fresh import TORCH, python_after
from zoo import small_unet, tiny_pipeline

import todome
from todome.reductions import AUTO_KEYS
from todome.tokens.grid import smallest_factor
from todome.tools.measuring.speed import BenchCase, BenchRow, read_bench
from todome.tools.measuring.verdict import THRESHOLDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures() -> Any:
    """What knows the tables of the pages, and makes each of them once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        patch.setattr(sys, "executable", python_after(TORCH))
        yield importlib.import_module("figures")
    sys.modules.pop("figures", None)


TABLES = sorted(path.name for path in (ROOT / "benchmarks").glob("*_tables.py"))


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_tables_are_the_committed_results(figures: Any, page: str):
    text = (ROOT / "docs" / page).read_text()
    assert figures.filled(text) == text


@pytest.mark.parametrize("script", TABLES)
def test_every_table_of_the_results_is_on_a_page(figures: Any, script: str):
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    marks = re.findall(rf"<!-- {script} (\S+) (\d+) -->", pages)
    assert marks or f"[{script} " in pages  # or its results are not there yet
    for results in {name for name, _ in marks}:
        count = len(figures.tables_of(script, results))
        assert {int(number) for name, number in marks if name == results} == set(range(1, count + 1))


def closeness_of_papers_sizes() -> dict[str, list[float]]:
    """PSNR to dense at the three sizes of ToDo's table, by tool."""
    runs = json.loads((ROOT / "benchmarks/results/ancestors-h200.json").read_text())
    rows = [row for name, run in runs.items() if name.startswith("todo-") for row in run["rows"]]
    tools = ("todome", "todo", "tome")
    return {tool: [r["closeness"]["psnr"] for r in rows if r["method"].startswith(f"{tool}:")] for tool in tools}


def from_to(values: Sequence[float]) -> str:
    return f"{min(values):.0f} to {max(values):.0f}"


def test_what_is_said_of_dithering_is_what_was_measured():
    rows = json.loads((ROOT / "benchmarks/results/fidelity-h200.json").read_text())["rows"]
    found = {(r["px"], r["scheduler"], r["steps"], r["method"]): r["psnr"] for r in rows if r["taken"] == r["steps"]}
    conditions = [key[:3] for key in found if key[3] == "dither 2"]
    gains = {
        (condition, factor): found[(*condition, f"dither {factor}")] - found[(*condition, f"fixed {factor} (ToDo)")]
        for condition in conditions
        for factor in (2, 4)
    }
    page = " ".join((ROOT / "docs/quality.md").read_text().split())
    usual = [gain for (condition, _), gain in gains.items() if condition[1:] in [("dpm++", 25), ("ddim", 25)]]
    assert f"gains {from_to(usual)} dB** over ToDo's fixed corner with DPM++ and DDIM at 25 steps" in page
    others = [gain for (condition, _), gain in gains.items() if condition[1:] in [("euler-a", 25), ("dpm++", 10)]]
    assert f"{from_to(others)} dB with Euler ancestral and with only 10 steps" in page


def test_what_is_said_of_the_sizes_of_todo_is_what_was_measured():
    close = closeness_of_papers_sizes()
    readme, page = (" ".join((ROOT / name).read_text().split()) for name in ("README.md", "docs/quality.md"))
    gains = [ours - theirs for ours, theirs in zip(close["todome"], close["todo"], strict=True)]
    assert f"{from_to(gains)} dB closer to those of full attention (dense) than ToDo's" in readme
    assert f"They are {from_to(gains)} dB closer to dense than ToDo's" in page
    assert f"{from_to(close['todome'])} dB PSNR on our test model at the sizes where it pays" in readme
    gains = [ours - theirs for ours, theirs in zip(close["todome"], close["tome"], strict=True)]
    assert f"{from_to(gains)} dB closer than ToMe's" in page


def test_what_is_said_of_plans_is_what_was_measured():
    rows = json.loads((ROOT / "benchmarks/results/tuning-h200.json").read_text())["rows"]
    page = " ".join((ROOT / "docs/quality.md").read_text().split())
    plans = {(row["px"], row["keep"]): row for row in rows if row["kind"] == "plan"}
    uniform = {px: [row for row in rows if (row["px"], row["kind"]) == (px, "uniform")] for px in (256, 512, 768)}

    def faster(px: int, keep: int) -> str:
        fastest = max(row["speedup"] for row in uniform[px] if row["psnr"] >= keep)
        return f"{100 * (plans[px, keep]['speedup'] / fastest - 1):.0f}"

    each = [faster(768, keep) for keep in (35, 40, 45, 50)]
    assert f"plans are {each[0]}, {each[1]}, {each[2]} and {each[3]} % faster than the fastest uniform factors" in page
    assert f"{faster(512, 40)} % faster for 40 dB and {faster(512, 45)} % for 45 dB, and keep 50 dB" in page
    assert max(row["psnr"] for row in uniform[512]) < 50
    assert f"For 35 dB little is gained: {faster(512, 35)} % over factor 4 everywhere" in page
    assert f"no uniform factor has more than {max(row['psnr'] for row in uniform[256]):.1f}" in page
    assert "19 dense steps are closer at that speed, by 0.5 dB" in plans.pop((256, 35))["verdict"]
    gains = {px: [closer_than_steps(row) for key, row in plans.items() if key[0] in px] for px in ((256,), (512, 768))}
    small, large = map(from_to, gains.values())
    assert f"by {small} dB at 256 px, by {large} dB at the larger sizes" in page


def test_what_is_said_of_plans_for_a_cpu_is_what_was_measured():
    page = " ".join((ROOT / "docs/quality.md").read_text().split())
    folder = ROOT / "flowers/src/todome_flowers/plans/cpu"
    found = [todome.Plan.load(folder / f"{px}-45.json").measured for px in (256, 512, 768)]
    first, second, third = [f"{one['psnr']:.1f} dB at {one['speedup']:.2f}x at {one['size'][0]} px" for one in found]
    assert f"there are plans with {first}, {second} and {third}; " in page
    steps, close = zip(*((one["control"]["steps"], one["control"]["psnr"]) for one in found), strict=True)
    told = f"{close[0]:.1f}, {close[1]:.1f} and {close[2]:.1f} dB"
    assert f"{steps[0]}, {steps[1]} and {steps[2]} dense steps are as fast and have {told}." in page


def closer_than_steps(plan: dict[str, Any]) -> float:
    found = re.search(r"dense steps are as fast, and ([0-9.]+) dB further off", plan["verdict"])
    assert found is not None
    return float(found[1])


def test_the_model_card_quotes_its_metrics():
    metrics = json.loads((ROOT / "flowers/metrics.json").read_text())
    card = (ROOT / "flowers/README.md").read_text()
    assert f"| {metrics['fid']:.1f} |" in card
    per_kind = ", ".join(f"{kind} {100 * share:.1f}" for kind, share in metrics["kind_found_per_kind"].items())
    assert f"{100 * metrics['kind_found']:.1f} % ({per_kind})" in card


def test_host_costs_are_the_committed_results():
    rows = json.loads((ROOT / "benchmarks/results/host.json").read_text())["rows"]
    cost = {row["method"]: row["extra_us"] for row in rows}
    page = (ROOT / "docs/speed.md").read_text()
    assert f"todome adds {cost['todome dithered']} µs" in page
    assert f"`Merge` {cost['todome Merge 0.5']} µs, tomesd {cost['tomesd 0.5']} µs" in page


def replayed(model: str, method: str, pictures: int = 1) -> list[float]:
    """The speed-ups of a method at the five sizes, where its name may hold the factor as F."""
    found = read_bench(ROOT / "benchmarks/results/speed-h200.json")
    cases = [BenchCase(model, (px, px), pictures, "cuda-graph") for px in FACTORS]
    names = [method.replace("F", str(FACTORS[case.size[0]])) for case in cases]
    rows = [row for case, name in zip(cases, names, strict=True) for row in found.of(case) if row.method == name]
    return [row.speedup for row in rows if row.speedup is not None]


FACTORS = {512: 2, 768: 2, 1024: 2, 1536: 3, 2048: 4}


def quoted_in_readme(head: str) -> list[str]:
    """The cells of a row of the README's table."""
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {head} |"))
    return [cell.strip(" *") for cell in line.split("|")[2:-1]]


@pytest.mark.parametrize(
    ("head", "model", "method"),
    [
        ("SD 1.5", "sd15", "todome:F"),
        ("SD 2.1", "sd21", "todome:F"),
        ("SDXL", "sdxl", "todome:F"),
        ("SDXL, levels 1 + 2", "sdxl", "todome:F,2"),
        ("tomesd 0.5 on SD 1.5", "sd15", "tomesd:0.5"),
    ],
)
def test_readme_quotes_the_committed_results(head: str, model: str, method: str):
    speedups = replayed(model, method)
    if (model, method) == ("sd15", "todome:F"):
        speedups[0] = replayed_once_more("sd15", 512)  # the first case of speed.py: the GPU's clock was not yet stable
    assert quoted_in_readme(head) == [f"{speedup:.2f}x" for speedup in speedups]


@pytest.mark.parametrize(
    ("head", "file", "model"),
    [
        ("SD 1.5, `torch.compile`", "compiled-h200.json", "sd15"),
        ("SDXL, `torch.compile`", "compiled-h200.json", "sdxl"),
        ("SD 1.5, xFormers-like kernel", "attention-h200.json", "sd15, efficient"),
        ("SD 1.5 without such a kernel", "attention-h200.json", "sd15, math"),
    ],
)
def test_readme_quotes_what_was_measured_otherwise(head: str, file: str, model: str):
    rows = read_bench(ROOT / "benchmarks/results" / file).rows
    found = {(row.case.size[0], row.method): row for row in rows if row.case.model == model}
    assert quoted_in_readme(head) == [told(found, px, factor) for px, factor in FACTORS.items()]


def told(found: dict[tuple[int, str], BenchRow], px: int, factor: int) -> str:
    """What the README says of a size: how much faster, that dense does not fit, or nothing if it was not measured."""
    if (px, "dense") not in found:
        return ""
    row = found[px, f"todome:{factor}"]
    assert row.ms is not None
    return "dense runs out of memory" if row.speedup is None else f"{row.speedup:.2f}x"


def test_memory_that_is_saved_is_what_was_measured():
    rows = read_bench(ROOT / "benchmarks/results/attention-h200.json").rows
    found = {(row.case.size[0], row.method): row for row in rows if row.case.model == "sd15, math"}
    reduced, dense = ((found[1024, method].mib or 0) * 2**20 / 1e9 for method in ("todome:2", "dense"))
    page = " ".join((ROOT / "docs/faq.md").read_text().split())
    assert f"SD 1.5 at 1024 px takes {reduced:.0f} GB for a call instead of {dense:.0f}" in page
    assert f"{(found[2048, 'todome:4'].mib or 0) * 2**20 / 1e9:.0f} GB at 2048 px" in page
    assert "asks for 256 GiB at once" in page
    assert found[2048, "dense"].note == "out of memory: 256.00 GiB at once"


def replayed_once_more(model: str, px: int) -> float:
    """The speed-up of todome in the second benchmark, overhead.py."""
    rows = json.loads((ROOT / "benchmarks/results/overhead-h200.json").read_text())["rows"]
    wanted = (model, px, "replay", "todome dithered")
    (speedup,) = [r["speedup"] for r in rows if (r["model"], r["px"], r["mode"], r["method"]) == wanted]
    return speedup


@pytest.mark.parametrize("model", ["sd15", "sd21", "sdxl"])
@pytest.mark.parametrize("pictures", [1, 4])
def test_todome_is_ahead_of_merging_at_every_size(model: str, pictures: int):
    assert "ahead of tomesd and of its own Merge at every size" in (ROOT / "docs/speed.md").read_text()
    for peer in ("tomesd:0.5", "tome:0.5"):
        pairs = zip(replayed(model, "todome:F", pictures), replayed(model, peer, pictures), strict=True)
        assert all(ours > theirs for ours, theirs in pairs)


def test_what_is_said_of_fid_is_what_was_measured():
    rows = json.loads((ROOT / "benchmarks/results/ancestors-h200.json").read_text())["tome"]["rows"]
    fid = {row["method"]: f"{row['fid']:.1f}" for row in rows}
    said = f"{fid['todome:2']} against {fid['dense']} for dense and {fid['tome:0.5']} for ToMe"
    assert said in " ".join((ROOT / "README.md").read_text().split())


def test_what_is_said_of_training_is_what_was_measured():
    page = " ".join((ROOT / "docs/training.md").read_text().split())
    rows = json.loads((ROOT / "benchmarks/results/training-h200.json").read_text())["rows"]
    plain = {(r["model"], r["method"][:8]): f"{r['speedup']:.2f}x" for r in rows if r["attention"] == "math"}
    claims = [plain["sd15", "todome:2"], plain["sd15", "todome:4"], plain["sdxl", "todome:2"]]
    assert "we find {}, {} and {} (one picture".format(*claims) in page
    flash = [r for r in rows if r["mode"] == "cuda-graph" and r["pictures"] == 4 and not r["checkpointing"]]
    gains = {(r["model"], r["px"]): f"{r['speedup']:.2f}x" for r in flash if r["method"].startswith("todome:2")}
    assert f"a step at 768 px {gains['sd15', 768]} as fast, not twice, and SDXL {gains['sdxl', 1024]}" in page


def test_what_is_said_of_loras_is_what_was_measured():
    page = " ".join((ROOT / "docs/training.md").read_text().split())
    runs = json.loads((ROOT / "benchmarks/results/lora-study-h200.json").read_text())
    rows = [(trained[:8], row) for trained, run in runs.items() for row in run["rows"]]
    close = {(trained, row["method"]): row["closeness"].get("psnr") for trained, row in rows}
    fid = {(trained, row["method"]): row["fid"] for trained, row in rows}
    four, two = (close["todome:4", sampled] - close["dense", sampled] for sampled in ("todome:4", "todome:2"))
    assert f"{four:.1f} dB closer to its own dense pictures when sampled with factor 4, and {two:.1f} dB" in page
    little = [close["todome:2", sampled] - close["dense", sampled] for sampled in ("todome:4", "todome:2")]
    assert "it is {:.1f} to {:.1f} dB closer".format(*little) in page
    assert f"reach {close['todo:4', 'todo:4']:.1f} dB with a LoRA that was trained with them" in page
    assert f"keys reach {close['dense', 'todome:4']:.1f} dB with one that never saw" in page
    raised = {trained: fid[trained, "dense"] - fid["dense", "dense"] for trained in ("todome:2", "todome:4", "todo:4")}
    by_random = from_to([raised["todome:2"], raised["todome:4"]])
    said = f'random keys (`phase="random"`) raised it by {by_random}, training with ToDo\'s fixed keys'
    assert f"{said} by {raised['todo:4']:.0f}." in page
    assert all(value <= fid[trained, "dense"] for (trained, _), value in fid.items())


def test_what_is_said_of_ray_is_what_was_measured():
    page = " ".join((ROOT / "docs/beyond.md").read_text().split())
    found = json.loads((ROOT / "benchmarks/results/batch.json").read_text())
    driver = found["driver"]
    whole, own = driver["wall_ms_per_row"], driver["driver_cpu_ms_per_row"]
    assert (
        f"{driver['rows']:,} rows whose work was next to nothing took {whole:.1f} ms each, of which {own:.1f} ms"
        in page
    )
    assert f"held at most {driver['store_mb']:.1f} MB. Starting a cluster on this machine took" in page
    assert f"took {found['cluster_start_s']:.1f} s" in page


def test_readme_snippet_runs(capsys):
    """The one that uses what is there; the other one downloads a model."""
    snippets = [part.split("```")[0] for part in (ROOT / "README.md").read_text().split("```python\n")[1:]]
    pipe = tiny_pipeline(unet=small_unet())
    exec(snippets[1], {"todome": todome, "pipe": pipe, "unet": pipe.unet, "scheduler": pipe.scheduler})
    assert "level 1" in capsys.readouterr().out
    assert "step" not in vars(pipe.scheduler)


PICKED = {"SD 1.5": ("sd15", 8), "SD 2.1": ("sd21", 8), "SDXL": ("sdxl", 16)}  # pixels on a side of a token of level 1


@pytest.mark.parametrize("head", PICKED)
def test_settings_quote_the_committed_results(head: str):
    """What "auto" is, and what level 1 alone and levels 1 + 2 gained."""
    model, pixels = PICKED[head]
    page = (ROOT / "docs/settings.md").read_text()
    first, both = replayed(model, "todome:F"), replayed(model, "todome:F,2")
    for (px, factor), one, two in zip(FACTORS.items(), first, both, strict=True):
        sides = [px // pixels, px // pixels // 2]  # of the grids of levels 1 and 2
        chosen = [smallest_factor((side, side), AUTO_KEYS) for side in sides]
        auto = f"`({chosen[0]}, {chosen[1]})`" if chosen[1] > 1 else f"`{chosen[0]}`" if chosen[0] > 1 else "dense"
        row = f"| {head} | {px} | {auto} | `{factor}`: {one:.2f}x | `({factor}, 2)`: {two:.2f}x |"
        assert row in page


def test_the_first_page_quotes_the_committed_results():
    page = (ROOT / "docs/index.md").read_text()
    for head, model in (("SD 1.x", "sd15"), ("SD 2.x", "sd21")):
        _, middle, large, larger, largest = (f"{speedup:.2f}x" for speedup in replayed(model, "todome:F"))
        said = f"yes: {middle} at 768 px, {large} at 1024, {larger} at 1536, {largest} at 2048"
        assert f"| {head} at 768 px and more | {said} |" in page
    first, both = replayed("sdxl", "todome:F"), replayed("sdxl", "todome:F,2")
    alone = f"{first[2]:.2f}x at 1024 px, {first[4]:.2f}x at 2048"
    assert f"| SDXL | little: {alone}; with a second level {both[2]:.2f}x and {both[4]:.2f}x |" in page
    close = {tool: from_to(values) for tool, values in closeness_of_papers_sizes().items()}
    said = "{todome} dB PSNR on our test model at 512 to 1024 px, where ToMe has {tome} and ToDo {todo}"
    assert said.format_map(close) in " ".join(page.split())


PAGES_WITH_GRADES = ("docs/index.md", "docs/settings.md", "docs/quality.md", "docs/hosts/command.md")


@pytest.mark.parametrize("page", PAGES_WITH_GRADES)
def test_pages_grade_a_psnr_as_the_verdict_does(page: str):
    """In the words of the page, the report and the command."""
    assert THRESHOLDS.partition("above ")[2] in " ".join((ROOT / page).read_text().split())


def test_what_is_said_of_averaging_is_what_was_measured():
    found = json.loads((ROOT / "docs/figures/why.json").read_text())
    page = " ".join((ROOT / "docs/how-it-works.md").read_text().split())
    single = [error for errors in found["once"].values() for error in errors]
    least, most = round(100 * min(single)), round(100 * max(single))
    assert f"In a single step every phase is about equally wrong, by {least} to {most} %." in page
    fixed, dither = found["averaged"]["fixed"], found["averaged"]["dither"]
    said = (
        f"stays wrong by {100 * fixed[-1]:.1f} %; that of dithering is within {100 * dither[3]:.1f} % after four steps"
    )
    assert said in page
    assert f"within {100 * dither[-1]:.2f} % at the end" in page


def test_what_is_said_of_memory_is_what_was_measured():
    found = read_bench(ROOT / "benchmarks/results/speed-h200.json")
    rows = {row.method: row.mib for row in found.of(BenchCase("sd15", (2048, 2048), 1, "eager"))}
    mib = {name: f"{rows[name]:,.0f}" for name in ("dense", "todome:4", "tome:0.5", "tomesd:0.5")}
    page = " ".join((ROOT / "docs/faq.md").read_text().split())
    ours = f"SD 1.5 takes {mib['dense']} MiB, todome {mib['todome:4']} and its `Merge` {mib['tome:0.5']}"
    assert f"at 2048 px the dense UNet of {ours}; tomesd takes {mib['tomesd:0.5']}" in page


FOLDERS = ("*.md", "docs/**/*.md", "examples/**/*.md", "flowers/**/*.md", "integrations/**/*.md")
PAGES = sorted(page.relative_to(ROOT).as_posix() for folder in FOLDERS for page in ROOT.glob(folder))


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page):
    text = re.sub(r"<!--.*?-->", "", (ROOT / page).read_text(), flags=re.DOTALL)  # what waits for results
    links = [part.split(")")[0] for part in text.split("](")[1:]]
    for link in links:
        if "://" not in link and not link.startswith("#"):
            assert ((ROOT / page).parent / link.partition("#")[0]).exists(), link
