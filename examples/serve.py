"""A server on Ray Serve: requests that fit together are drawn in one call, each with its own prompt and seed.

    python serve.py --port 8000
    curl -o tulip.png -d '{"prompt": "a red tulip", "seed": 3, "size": 512, "factor": 2}' http://127.0.0.1:8000/

Requests with other sizes, steps, guidance or factors are drawn beside them, in threads that share the model; Ray adds
replicas where there are more GPUs. Needs: pip install "ray[serve]"
"""

import argparse
import asyncio
import copy
import io
import json
import os
import time
from typing import Any

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
import ray
import torch
from diffusers import StableDiffusionPipeline
from ray import serve
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import todome

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="stable-diffusion-v1-5/stable-diffusion-v1-5", help="a folder or a hub id")
parser.add_argument("--max-size", type=int, default=1024, help="of a side, in pixels")
parser.add_argument("--max-steps", type=int, default=50)
parser.add_argument("--batch", type=int, default=4, help="requests that are drawn in one call")
parser.add_argument("--queue", type=int, default=64, help="requests that may wait; more are answered with 503")
parser.add_argument("--wait", type=float, default=0.05, help="seconds in which others may join a call")
parser.add_argument("--replicas", type=int, default=max(1, torch.cuda.device_count()))
parser.add_argument("--port", type=int, default=8000)
NUMBERS = {"seed": (0, 0, 2**63 - 1), "steps": (25, 1, 0), "guidance": (7.5, 0, 30), "factor": (2, 1, 8)}
SHARED = ("size", "steps", "guidance", "factor")  # by the pictures of one call


LONGEST = 10_000  # bytes of a request


async def read_body(request: Request) -> bytes:
    """The body of a request. One that is longer than any prompt is not read to its end."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST:
            raise OverflowError(f"This request is too long. Allowed: {LONGEST} bytes.")
    return body


def read_request(body: bytes, max_size: int, max_steps: int) -> dict:
    """The settings of a request, within the limits of the server."""
    try:
        asked = json.loads(body)
    except (RecursionError, ValueError):
        asked = None
    if not isinstance(asked, dict):
        raise ValueError('This is no object in JSON, such as {"prompt": "a red tulip", "seed": 3}.')
    found = {"prompt": str(asked.get("prompt", ""))[:500]}
    for name, (usual, least, most) in {**NUMBERS, "size": (512, 8, max_size)}.items():
        most = max_steps if name == "steps" else most
        value = asked.get(name, min(usual, most))
        kinds = (int, float) if name == "guidance" else int
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            raise ValueError(f"{name}={value!r} cannot be used. Allowed: a number from {least} to {most}.")
        found[name] = value
    if found["size"] % 8:
        raise ValueError(f"size={found['size']} cannot be used. Allowed: multiples of 8.")
    return found


class Painter:
    """One model on one GPU. What belongs to a call (scheduler, tokenizer, reduction) is made for the call."""

    def __init__(self, options: argparse.Namespace) -> None:
        device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
        self.options = options
        self.pipe = StableDiffusionPipeline.from_pretrained(options.model, dtype=dtype).to(device)
        self.pipe.set_progress_bar_config(disable=True)
        self.draw_together.set_max_batch_size(options.batch)
        self.draw_together.set_batch_wait_timeout_s(options.wait)

    async def __call__(self, request: Request) -> Response:
        try:
            asked = read_request(await read_body(request), self.options.max_size, self.options.max_steps)
        except OverflowError as error:
            return PlainTextResponse(str(error), 413)
        except ValueError as error:
            return PlainTextResponse(str(error), 400)
        picture, error = await self.draw_together(asked)
        return PlainTextResponse(error, 500) if error else Response(picture, media_type="image/png")

    @serve.batch
    async def draw_together(self, asked: list[dict]) -> list[tuple[bytes, str]]:
        """Requests that came within a moment: one call for each settings that some of them share, all at once."""
        groups: dict[tuple, list[int]] = {}
        for number, one in enumerate(asked):
            groups.setdefault(tuple(one[name] for name in SHARED), []).append(number)
        calls = [asyncio.to_thread(self.draw, [asked[i] for i in numbers]) for numbers in groups.values()]
        answers = [(b"", "")] * len(asked)
        for numbers, drawn in zip(groups.values(), await asyncio.gather(*calls, return_exceptions=True), strict=True):
            for place, number in enumerate(numbers):
                answers[number] = (b"", str(drawn)) if isinstance(drawn, BaseException) else (drawn[place], "")
        return answers

    def draw(self, group: list[dict]) -> list[bytes]:
        """In a thread: a pipeline of its own, whose UNet has hooks of its own around the weights that all share."""
        own, first = copy.copy(self.pipe), group[0]
        own.scheduler, own.tokenizer = copy.deepcopy(self.pipe.scheduler), copy.deepcopy(self.pipe.tokenizer)
        weights = {id(tensor): tensor for tensor in self.pipe.unet.state_dict(keep_vars=True).values()}
        own.unet = copy.deepcopy(self.pipe.unet, weights)
        noise = [torch.Generator().manual_seed(one["seed"]) for one in group]
        asked = {"width": first["size"], "height": first["size"], "num_inference_steps": first["steps"]}
        with todome.apply(own, todome.Downsample(first["factor"])):
            prompts = [one["prompt"] for one in group]
            pictures = own(prompts, **asked, guidance_scale=first["guidance"], generator=noise).images
        return [as_png(picture) for picture in pictures]


def as_png(picture) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def main() -> None:
    options = parser.parse_args()
    ray.init(address=os.environ.get("RAY_ADDRESS", "local"), log_to_driver=False, logging_level="ERROR")
    resources = {"num_gpus": 1} if torch.cuda.is_available() else {"num_cpus": 0.5}
    limits = {"max_ongoing_requests": 4 * options.batch, "max_queued_requests": options.queue}
    painters: Any = serve.deployment(Painter, num_replicas=options.replicas, ray_actor_options=resources, **limits)
    serve.start(http_options={"host": "127.0.0.1", "port": options.port}, logging_config={"log_level": "ERROR"})
    serve.run(painters.bind(options))
    print(f"Listening on http://127.0.0.1:{options.port}", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
