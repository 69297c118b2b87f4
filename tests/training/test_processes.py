"""Two processes that `accelerate launch` starts train the LoRA that one process trains from the same batches."""

import os
import subprocess
import sys

import torch
from safetensors.torch import load_file

from todome import Downsample
from todome.tools.training.lora import train
from todome.tools.training.metadata import training_in

# accelerate starts several processes only by the name of GPUs; --cpu of the trainer then leaves these alone.
LAUNCH = "--multi_gpu --num_processes 2 --num_machines 1 --main_process_port 0 --mixed_precision no --dynamo_backend no"
OPTIONS = "--size 32 --steps 2 --rank 2 --batch 2 --factor 2 --sample red --sample white --checkpointing --cpu"


def test_two_processes_are_one(recipe, photos, tmp_path, tiny):
    words = ["-m", "todome", "train-lora", tiny, "--data", photos, *OPTIONS.split(), "-o", tmp_path / "two.safetensors"]
    launch = [sys.executable, "-m", "accelerate.commands.launch", *LAUNCH.split(), *map(str, words)]
    calm = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(launch, capture_output=True, text=True, env=calm, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [
        "Pictures",
        "Step 2 of 2",
        str(tmp_path / "two.safetensors"),
    ]
    told = training_in(tmp_path / "two.safetensors")
    asked = recipe(steps=2, accumulate=2, reduction=Downsample(2, phase="random"))
    train(asked, tmp_path / "one.safetensors", cpu=True)
    one, two = load_file(tmp_path / "one.safetensors"), load_file(tmp_path / "two.safetensors")
    assert told["batches_per_step"] == 2
    assert told == training_in(tmp_path / "one.safetensors")
    assert any(weight.any() for name, weight in two.items() if "lora_B" in name)
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-3, atol=1e-6)
    drawn = sorted(path.name for path in (tmp_path / "two-run/samples").iterdir())
    assert drawn == ["000002-1.png", "000002-2.png"]
    resumed = train(asked, tmp_path / "two.safetensors", resume=True, cpu=True)
    assert resumed.steps == 0, "what two processes began, one may go on with"
