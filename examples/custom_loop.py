"""A sampling loop of your own, without any scheduler: `patch.at` tells todome where the loop is.

Where a loop calls a scheduler of diffusers, `todome.apply(unet, scheduler=scheduler)` follows it by itself.

    python custom_loop.py "a red tulip" --stop 0.8
"""

import argparse

import torch
from diffusers import StableDiffusionPipeline

import todome

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("prompt", nargs="?", default="a red tulip")
parser.add_argument("--model", default="stable-diffusion-v1-5/stable-diffusion-v1-5", help="a folder or a hub id")
parser.add_argument("--size", default="1024", help="512, or 512x768 for width x height")
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--guidance", type=float, default=7.5, help="how closely to follow the prompt")
parser.add_argument("--factor", type=int, default=2, help="attend to 1 token in factor x factor")
parser.add_argument("--stop", type=float, default=0.8, help="the share of the steps after which attention is full")
parser.add_argument("--out", default="custom-loop.png")
args = parser.parse_args()
torch.set_grad_enabled(False)

device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
pipe = StableDiffusionPipeline.from_pretrained(args.model, dtype=dtype).to(device)
wanted, unwanted = pipe.encode_prompt(args.prompt, device, 1, True)
words = torch.cat([unwanted, wanted])
width, height = (int(side) // pipe.vae_scale_factor for side in (args.size.split("x") * 2)[:2])
latents = torch.randn(1, 4, height, width, generator=torch.Generator().manual_seed(0)).to(words)
times = torch.linspace(1000, 0, args.steps + 1).round().long()[:-1] - 1
signal = torch.cat([pipe.scheduler.alphas_cumprod[times], torch.ones(1)]).to(words)  # the share of it at each time

patch = todome.apply(pipe.unet, todome.Downsample(args.factor, stop=args.stop))
for step, time in enumerate(times):
    patch.at(step, args.steps)  # before each step: which tokens are kept, and whether the window is open
    without, within = pipe.unet(torch.cat([latents] * 2), time.to(device), words).sample.chunk(2)
    predicted = without + args.guidance * (within - without)
    now, then = signal[step], signal[step + 1]
    if pipe.scheduler.config.prediction_type == "v_prediction":
        predicted = now.sqrt() * predicted + (1 - now).sqrt() * latents
    clean = (latents - (1 - now).sqrt() * predicted) / now.sqrt()
    latents = then.sqrt() * clean + (1 - then).sqrt() * predicted  # DDIM: arXiv 2010.02502, equation 12, without noise

decoded = pipe.vae.decode(latents / pipe.vae.config.scaling_factor).sample
picture = pipe.image_processor.postprocess(decoded)[0]
picture.save(args.out)
print(patch, f"Picture: {args.out}", sep="\n")
