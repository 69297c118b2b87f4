"""A server with threads: one model for all requests, reduced once, and a scheduler and a tokenizer for each request.

    python server.py --port 8000
    curl -o tulip.png "http://127.0.0.1:8000/?prompt=a+red+tulip&seed=3"

Requests are drawn at the same time, each as if it were alone: the same prompt and seed give the same picture. There are
so many threads at the most; requests beyond them wait for their turn.
"""

import argparse
import copy
import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import torch
from diffusers import StableDiffusionPipeline

import todome

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="stable-diffusion-v1-5/stable-diffusion-v1-5", help="a folder or a hub id")
parser.add_argument("--size", default="1024", help="512, or 512x768 for width x height")
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--factor", type=int, default=2, help="attend to 1 token in factor x factor")
parser.add_argument("--threads", type=int, default=4, help="requests that are drawn at once")
parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
args = parser.parse_args()

device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
pipe = StableDiffusionPipeline.from_pretrained(args.model, dtype=dtype).to(device)
pipe.set_progress_bar_config(disable=True)
patch = todome.apply(pipe, todome.Downsample(args.factor))
width, height = map(int, (args.size.split("x") * 2)[:2])


def draw(prompt: str, seed: int) -> bytes:
    """A picture as a PNG file, by a pipeline of its own around the models that all share.

    Neither a scheduler nor a tokenizer can be shared: one counts steps, the other says "Already borrowed".
    """
    own = copy.copy(pipe)
    own.scheduler, own.tokenizer = copy.deepcopy(pipe.scheduler), copy.deepcopy(pipe.tokenizer)
    asked = {"width": width, "height": height, "num_inference_steps": args.steps}
    picture = own(prompt, **asked, generator=torch.Generator().manual_seed(seed)).images[0]
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def read_request(path: str) -> tuple[str, int]:
    """Prompt and seed of a request, or a sentence on what is wrong with them."""
    query = parse_qs(urlsplit(path).query, max_num_fields=2)
    prompt, seed = query.get("prompt", [""])[0], query.get("seed", ["0"])[0]
    if not 0 < len(prompt) <= 500:
        raise ValueError("Ask for /?prompt=TEXT&seed=NUMBER, with at most 500 characters of text.")
    if not seed.isdecimal() or len(seed) > 19 or int(seed) >= 2**63:
        raise ValueError(f"seed={seed[:40]!r} cannot be used. Allowed: a whole number from 0 to 2**63 - 1.")
    return prompt, int(seed)


class Handler(BaseHTTPRequestHandler):
    timeout = 10  # seconds for a request to arrive: one that does not would keep its thread

    def do_GET(self) -> None:
        try:
            prompt, seed = read_request(self.path)
        except ValueError as error:
            self.send_error(400, explain=str(error))
            return
        body = draw(prompt, seed)
        self.send_response(200)
        self.send_header("Content-Type", "image/png")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """Server with so many threads at the most. What comes beyond is not even read before one is free."""

    free = threading.BoundedSemaphore(args.threads)

    def process_request(self, request, client_address) -> None:
        self.free.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()


with Server(("127.0.0.1", args.port), Handler) as server:
    print(patch, f"Listening on http://127.0.0.1:{server.server_port}", sep="\n", flush=True)
    server.serve_forever()
