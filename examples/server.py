"""A server with threads: one model for all requests, reduced once, and a scheduler and a tokenizer for each request.

    python server.py --port 8000
    curl -o tulip.png "http://127.0.0.1:8000/?prompt=a+red+tulip&seed=3"

Requests are drawn at the same time, each as if it were alone: the same prompt and seed give the same picture.
"""

import argparse
import copy
import io
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


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        try:
            body = draw(query["prompt"][0][:500], int(query.get("seed", ["0"])[0]))
        except (KeyError, ValueError):
            self.send_error(400, "Ask for /?prompt=TEXT&seed=NUMBER")
            return
        self.send_response(200)
        self.send_header("Content-Type", "image/png")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


with ThreadingHTTPServer(("127.0.0.1", args.port), Handler) as server:
    print(patch, f"Listening on http://127.0.0.1:{server.server_port}", sep="\n", flush=True)
    server.serve_forever()
