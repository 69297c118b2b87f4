"""What pages say of closeness is what was measured."""

import json
import re
import statistics
from typing import Any

import pytest
from measured import closeness_of_papers_sizes, from_to, results, sentences
from pages import ROOT

import todome
from todome.tools.measuring.evaluation import FLOWERS
from todome.tools.measuring.verdict import THRESHOLDS
from todome.tools.tuning.drawings import closeness


def test_what_is_said_of_dithering_is_what_was_measured():
    rows = results("fidelity-h200.json")["rows"]
    found = {(r["px"], r["scheduler"], r["steps"], r["method"]): r["psnr"] for r in rows if r["taken"] == r["steps"]}
    conditions = [key[:3] for key in found if key[3] == "dither 2"]
    gains = {
        (condition, factor): found[(*condition, f"dither {factor}")] - found[(*condition, f"fixed {factor} (ToDo)")]
        for condition in conditions
        for factor in (2, 4)
    }
    page = sentences("docs/quality.md")
    usual = [gain for (condition, _), gain in gains.items() if condition[1:] in [("dpm++", 25), ("ddim", 25)]]
    assert f"gains {from_to(usual)} dB** over ToDo's fixed corner with DPM++ and DDIM at 25 steps" in page
    others = [gain for (condition, _), gain in gains.items() if condition[1:] in [("euler-a", 25), ("dpm++", 10)]]
    assert f"{from_to(others)} dB with Euler ancestral and with only 10 steps" in page


def test_what_is_said_of_the_sizes_of_todo_is_what_was_measured():
    close = closeness_of_papers_sizes()
    readme, page = map(sentences, ("README.md", "docs/quality.md"))
    gains = [ours - theirs for ours, theirs in zip(close["todome"], close["todo"], strict=True)]
    assert f"{from_to(gains)} dB closer to those of full attention (dense) than ToDo's" in readme
    assert f"They are {from_to(gains)} dB closer to dense than ToDo's" in page
    assert f"{from_to(close['todome'])} dB PSNR on our test model at the sizes where it pays" in readme
    gains = [ours - theirs for ours, theirs in zip(close["todome"], close["tome"], strict=True)]
    assert f"{from_to(gains)} dB closer than ToMe's" in page


def test_what_is_said_of_fid_is_what_was_measured():
    rows = results("ancestors-h200.json")["tome"]["rows"]
    fid = {row["method"]: f"{row['fid']:.1f}" for row in rows}
    said = f"{fid['todome:2']} against {fid['dense']} for dense and {fid['tome:0.5']} for ToMe"
    assert said in sentences("README.md")


def test_what_is_said_of_loras_is_what_was_measured():
    page = sentences("docs/training.md")
    runs = results("lora-study-h200.json")
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


def test_what_is_said_of_plans_is_what_was_measured():
    rows = results("tuning-h200.json")["rows"]
    page = sentences("docs/quality.md")
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


def measured(px: int, kind: str) -> dict[str, Any]:
    """Every measurement of one kind that is committed, by what was measured."""
    text = (ROOT / f"benchmarks/results/tuning-h200/{px}/measurements.jsonl").read_text()
    entries = [json.loads(line) for line in text.splitlines()]
    return {json.dumps(one["what"][kind]): one["found"] for one in entries if one["what"].keys() == {kind}}


@pytest.mark.parametrize("px", [256, 512, 768])
def test_plans_are_the_fastest_that_were_drawn_within_their_budget(px: int):
    """By the measurements that are committed; the speeds of plans within 1 % of each other are timed no better."""
    errors, speeds = measured(px, "picture errors"), measured(px, "speed-up")
    drawn = [(closeness(errors[choice])["psnr"], speed["speedup"]) for choice, speed in speeds.items()]
    plans = [row for row in results("tuning-h200.json")["rows"] if (row["px"], row["kind"]) == (px, "plan")]
    assert len(plans) == 4
    for plan in plans:
        assert (plan["psnr"], plan["speedup"]) in [(psnr, round(speedup, 3)) for psnr, speedup in drawn]
        assert plan["speedup"] >= 0.99 * max(speedup for psnr, speedup in drawn if psnr >= plan["keep"])


def test_what_is_said_of_prompts_that_layers_were_measured_with_is_what_was_measured():
    calibration, pictures = 12, 32
    same = [i for i in range(pictures) if (calibration + i) % len(FLOWERS) < calibration]
    others = [i for i in range(pictures) if i not in same]
    assert len(same) == len(others) == 16

    def closer(errors: list[float]) -> float:
        """The PSNR of pictures with other prompts less that of pictures with the same ones."""
        one, two = (closeness([errors[i] for i in numbers])["psnr"] for numbers in (others, same))
        return one - two

    kinds = ("picture errors", "picture errors, uniform")
    plans, uniform = (statistics.fmean(map(closer, measured(256, kind).values())) for kind in kinds)
    said = f"they have {plans:.1f} dB more on the other 16, on average, and the uniform factors {uniform:.1f} dB more."
    assert said in sentences("docs/quality.md")


def test_what_is_said_of_plans_on_other_pictures_is_what_was_measured():
    gpu, cpu, uniform = results("other-pictures.json")["rows"]
    page = sentences("docs/quality.md")
    said = "for 256 px and 45 dB, which 32 pictures chose, has {psnr:.1f} dB ({chosen_with:.1f} dB on those);"
    assert said.format_map(gpu) in page
    said = "that of two CPU cores, which six chose, has {psnr:.1f} dB ({chosen_with:.1f} dB)."
    assert said.format_map(cpu) in page
    assert f"Factor 2 has {uniform['psnr']:.1f} dB on the same ten." in page
    assert f"have is said today too: {cpu['psnr']:.1f} dB on ten of them" in sentences("docs/tuning.md")
    folder = ROOT / "flowers/src/todome_flowers/plans"
    chose = [todome.Plan.load(folder / name / "256-45.json").measured["pictures"] for name in ("h200", "cpu")]
    assert chose == [32, 6]


def closer_than_steps(plan: dict[str, Any]) -> float:
    found = re.search(r"dense steps are as fast, and ([0-9.]+) dB further off", plan["verdict"])
    assert found is not None
    return float(found[1])


def test_what_is_said_of_plans_for_a_cpu_is_what_was_measured():
    page = sentences("docs/quality.md")
    folder = ROOT / "flowers/src/todome_flowers/plans/cpu"
    found = [todome.Plan.load(folder / f"{px}-45.json").measured for px in (256, 512, 768)]
    first, second, third = [f"{one['psnr']:.1f} dB at {one['speedup']:.2f}x at {one['size'][0]} px" for one in found]
    assert f"there are plans with {first}, {second} and {third}; " in page
    steps, close = zip(*((one["control"]["steps"], one["control"]["psnr"]) for one in found), strict=True)
    told = f"{close[0]:.1f}, {close[1]:.1f} and {close[2]:.1f} dB"
    assert f"{steps[0]}, {steps[1]} and {steps[2]} dense steps are as fast and have {told}." in page


def test_the_model_card_quotes_its_metrics():
    metrics = json.loads((ROOT / "flowers/metrics.json").read_text())
    card = (ROOT / "flowers/README.md").read_text()
    assert f"| {metrics['fid']:.1f} |" in card
    per_kind = ", ".join(f"{kind} {100 * share:.1f}" for kind, share in metrics["kind_found_per_kind"].items())
    assert f"{100 * metrics['kind_found']:.1f} % ({per_kind})" in card


def test_what_is_said_of_averaging_is_what_was_measured():
    found = json.loads((ROOT / "docs/figures/why.json").read_text())
    page = sentences("docs/how-it-works.md")
    single = [error for errors in found["once"].values() for error in errors]
    least, most = round(100 * min(single)), round(100 * max(single))
    assert f"In a single step every phase is about equally wrong, by {least} to {most} %." in page
    fixed, dither = found["averaged"]["fixed"], found["averaged"]["dither"]
    said = (
        f"stays wrong by {100 * fixed[-1]:.1f} %; that of dithering is within {100 * dither[3]:.1f} % after four steps"
    )
    assert said in page
    assert f"within {100 * dither[-1]:.2f} % at the end" in page


PAGES_WITH_GRADES = ("docs/index.md", "docs/settings.md", "docs/quality.md", "docs/hosts/command.md")


@pytest.mark.parametrize("page", PAGES_WITH_GRADES)
def test_pages_grade_a_psnr_as_the_verdict_does(page: str):
    """In the words of the page, the report and the command."""
    assert THRESHOLDS.partition("above ")[2] in sentences(page)
