"""The same on a real Ray cluster: workers and drivers that are killed, the same pictures, plain errors."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import made
import numpy as np
import pytest
import torch
from fresh import DRAWING, python_after
from made import Picky, command, index, kill, pixels, wait_for, write_prompts
from PIL import Image

import todome
from todome import Downsample
from todome.tools.engines.on_ray import OnRay
from todome.tools.generate import Settings, make_picture
from todome.tools.measuring.drawing import PictureMaker
from todome.tools.measuring.evaluation import carry_out, plan_for
from todome.tools.measuring.methods import Method
from todome.tools.pipelines import open_pipeline
from todome.tools.tuning.drawings import Drawing, Drawings

pytestmark = [
    pytest.mark.thorough,  # a cluster takes long to come and to go
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Ray, about itself
    pytest.mark.xdist_group("cluster"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of a cluster with two CPUs. Its workers give way to nobody: others' tests would keep them waiting."""
    import ray

    quiet: Any = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    at_once = {"worker_niceness": 0}
    found: Any = ray.init("local", num_cpus=2, object_store_memory=100_000_000, _system_config=at_once, **quiet)
    yield found.address_info["gcs_address"]
    ray.shutdown()


def wait_for_another(killed: set[int], process: Any) -> int:
    """A process that has drawn a picture of the index, and was not killed."""

    def found() -> list[int]:  # the index comes later than the first pictures, which the workers write
        there = index("out") if Path("out/index.jsonl").is_file() else []
        return [worker for record in there if (worker := int(record["worker"].partition("/")[2])) not in killed]

    wait_for(lambda: bool(found()), process)
    return found()[-1]


def test_killed_workers_and_a_killed_driver_lose_nothing(
    batch: Callable[..., Any], model: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
):
    """All workers are killed, and then the driver. The pictures are those that one process draws, to the bit."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as many as here: products of matrices are added up by thread
    write_prompts(8)
    steps = ("--steps", 12, "--scheduler", "euler-a")
    line, out = command(model, "prompts.txt", "-o", "out", "--ray", cluster, "--workers", 2, *steps), Path("out")
    killed: set[int] = set()
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(2):
            killed.add(worker := wait_for_another(killed, process))
            os.kill(worker, signal.SIGKILL)
        wait_for_another(killed, process)
        kill(process)
        assert process.communicate() == ("", "")  # Ray says nothing of its own
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.png")}
    assert len(before) < 8
    assert torch.get_num_threads() == 1
    for folder in ("out", "here"):  # who goes on is all the same: here it is this process
        ended = batch("prompts.txt", "-o", folder, *steps)
        assert ended.exit_code == 0, ended.output
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [record["row"] for record in index()] == list(range(1, 9))
    assert len({record["worker"] for record in index()} - {"cpu"}) > 2
    for record, alone in zip(index(), index("here"), strict=True):
        assert record["key"] == alone["key"]
        assert (pixels(record) == pixels(alone, "here")).all()


def test_the_engine_gives_every_item_once_and_raises_what_a_worker_raises(
    cluster: str, tmp_path: Path, monkeypatch: Any
):
    from ray import cloudpickle

    monkeypatch.chdir(tmp_path)
    cloudpickle.register_pickle_by_value(made)  # which the workers cannot import
    engine = OnRay(cluster, workers=(1, 1))
    assert sorted(engine.run(Picky(), range(3), "test")) == [f"{item} in {tmp_path} on auto" for item in range(3)]
    with pytest.raises(ValueError, match=r"^Three is too much\.$"):
        list(engine.run(Picky(), range(10), "test"))


def test_a_cluster_that_does_not_answer(batch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    write_prompts(1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = batch("prompts.txt", "-o", "out", "--ray", address)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: ray='{address}' cannot be used. Allowed: an address such as")
    assert not Path("out").exists()


def test_without_ray_it_is_said_how_to_install_it(batch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    write_prompts(1)
    assert 'pip install "todome[ray]"' in batch("prompts.txt", "-o", "out", "--ray").stderr


@pytest.mark.parametrize(("workers", "share"), [("0", "1"), ("4-2", "1"), ("many", "1"), ("1", "0")])
def test_numbers_of_workers_that_make_no_sense(batch: Callable[..., Any], workers: str, share: str):
    write_prompts(1)
    result = batch("prompts.txt", "-o", "out", "--ray", "--workers", workers, "--gpu-share", share)
    assert result.exit_code == 2


def test_an_evaluation_has_the_same_table(cluster: str, tmp_path: Path, lpips: Path, inception: Path):
    """Pictures to the bit, metrics and FID to rounding."""
    plan = plan_for(prompts=["a rose", "a tulip"], methods=["todome:2"], sizes=((32, 32),), pictures=3, steps=2)
    options: Any = {"device": "cpu", "fid": True, "lpips": lpips, "inception": inception}
    with pytest.warns(UserWarning, match="FID is biased"):
        spread = carry_out(plan, tmp_path / "spread", engine=OnRay(cluster, workers=(1, 1)), **options)
    with pytest.warns(UserWarning, match="FID is biased"):
        alone = carry_out(plan, tmp_path / "alone", **options)
    for one, other in zip(spread.rows, alone.rows, strict=True):
        assert (one.method, one.closeness) == (other.method, other.closeness)
        for number in range(3):
            files = [run.picture(one.size, one.method, number).read_bytes() for run in (spread, alone)]
            assert files[0] == files[1]
    assert spread.rows[1].fid == pytest.approx(alone.rows[1].fid, rel=1e-3)
    assert all(spread.about[name] == alone.about[name] for name in ("dtype", "weights"))


def test_a_tuning_draws_the_same(cluster: str, model: Path, monkeypatch: pytest.MonkeyPatch):
    """Errors of pictures and of latents, which are all that a tuning makes of its drawings."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    drawn = plan_for(str(model), ["a rose", "a tulip", "a fox"], sizes=((32, 32),), pictures=3, steps=4, methods=[])
    common: Any = {"steps": 3, "dense_steps": 4}
    pictures = Drawing(Method("plan", reduction=Downsample(2)), range(1, 3), output="pt", **common)
    wanted = [pictures, pictures._replace(numbers=range(1), output="latent")]
    found = []
    for engine in (None, OnRay(cluster, (1, 1))):
        maker = PictureMaker(drawn, Path(), None, "cpu", "float32")
        found.append(dict(Drawings(maker, range(1), range(1, 3), 2, engine).errors(wanted)))
    here, spread = found
    assert spread == {number: pytest.approx(errors, rel=1e-4) for number, errors in here.items()}
    assert [len(here[number]) for number in (0, 1)] == [2, 1]
    assert all(error > 0 for errors in here.values() for error in errors)


def test_an_open_pipeline_cannot_be_sent(flowers: Any, cluster: str, tmp_path: Path):
    engine = OnRay(cluster, workers=(1, 1))
    with pytest.raises(TypeError, match="with an engine in other processes"):
        todome.tune(flowers, ["a rose", "a fox"], keep=40, engine=engine)
    with pytest.raises(TypeError, match=r"Name what each of them is to open\.$"):
        carry_out(plan_for(), tmp_path / "run", pipe=flowers, engine=engine)


@pytest.fixture
def server(cluster: str, model: Path) -> Iterator[str]:
    """Address of the example, which draws on the cluster."""
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--model", str(model), "--max-size", "64", "--max-steps", "8", "--wait", "0.5", "--port", str(port)]
    example = Path(__file__).parents[2] / "examples" / "serve.py"
    process = subprocess.Popen(
        [python_after(DRAWING), str(example), *words],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"RAY_ADDRESS": cluster, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    said = next((line for line in process.stdout if line.startswith("Listening on ")), "")
    yield said.split()[-1]
    process.kill()
    process.communicate()
    serve.shutdown()


def test_the_server_draws_each_request_with_its_own_settings(server: str, model: Path):
    """At once, with other sizes, steps and factors: each is the picture that is drawn alone."""

    def post(asked: dict[str, Any]) -> bytes:
        with urlopen(Request(server, json.dumps(asked).encode()), timeout=120) as answer:
            return answer.read()

    asked: list[Any] = [
        {"prompt": "a rose", "seed": 3, "size": 32, "steps": 4, "factor": 2},
        {"prompt": "a rose", "seed": 3, "size": 48, "steps": 6, "factor": 2},
        {"prompt": "a rose", "seed": 3, "size": 32, "steps": 4, "factor": 1},
        {"prompt": "a tulip", "seed": 4, "size": 32, "steps": 4, "factor": 2},
    ]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(post, asked))
    pipe = open_pipeline(model, "cpu")
    for one, answer in zip(asked, found, strict=True):
        size, reduction = (one["size"], one["size"]), Downsample(one["factor"])
        settings = Settings(one["prompt"], seed=one["seed"], size=size, steps=one["steps"], reduction=reduction)
        expected = np.asarray(make_picture(settings, pipe).picture).astype(int)
        with Image.open(io.BytesIO(answer)) as picture:
            assert abs(np.asarray(picture) - expected).max() <= 1  # two of them were drawn in one call
    for status, wrong in ((400, {"size": 128}), (413, {"prompt": "a rose" * 10_000})):
        with pytest.raises(HTTPError, match=str(status)) as refused:
            post(wrong)
        assert b"Allowed: " in refused.value.read()
