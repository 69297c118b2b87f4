"""An original model of CompVis or Stability, with its own code and its own sampler.

Needs a checkpoint as .safetensors, the .yaml that belongs to it, and the package `ldm` of CompVis/stable-diffusion or
Stability-AI/stablediffusion. The sampler calls the UNet once at each step, which is all that dithering needs; for a
window, call `patch.at` as custom_loop.py does.

    python ldm_original.py "a lighthouse" --model v1-5-pruned-emaonly.safetensors --config v1-inference.yaml
"""

import argparse

import torch
from ldm.models.diffusion.ddim import DDIMSampler
from ldm.util import instantiate_from_config
from omegaconf import OmegaConf
from PIL import Image
from safetensors.torch import load_file

import todome

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("prompt", nargs="?", default="a lighthouse at dusk")
parser.add_argument("--model", default="v1-5-pruned-emaonly.safetensors", help="the checkpoint")
parser.add_argument("--config", default="v1-inference.yaml", help="the .yaml that belongs to it")
parser.add_argument("--size", default="1024", help="512, or 512x768 for width x height")
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--guidance", type=float, default=7.5, help="how closely to follow the prompt")
parser.add_argument("--factor", type=int, default=2, help="attend to 1 token in factor x factor")
parser.add_argument("--out", default="ldm.png")
args = parser.parse_args()
torch.set_grad_enabled(False)

device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
model = instantiate_from_config(OmegaConf.load(args.config).model)
missing = model.load_state_dict(load_file(args.model), strict=False).missing_keys  # files also hold what training needs
if missing:
    parser.error(f"{args.model} lacks {len(missing)} weights that {args.config} asks for")
model.to(device).eval()
patch = todome.apply(model, todome.Downsample(args.factor))

torch.manual_seed(0)
width, height = (int(side) // 8 for side in (args.size.split("x") * 2)[:2])  # 8 pixels on a side of one latent
with torch.autocast(device, dtype, enabled=device != "cpu"):
    latents, _ = DDIMSampler(model).sample(
        S=args.steps,
        batch_size=1,
        shape=(4, height, width),
        conditioning=model.get_learned_conditioning([args.prompt]),
        unconditional_conditioning=model.get_learned_conditioning([""]),
        unconditional_guidance_scale=args.guidance,
        verbose=False,
    )
    pixels = model.decode_first_stage(latents)[0].clamp(-1, 1)  # (3, H, W)
picture = Image.fromarray((127.5 * (pixels + 1)).permute(1, 2, 0).byte().cpu().numpy())
picture.save(args.out)
print(patch, f"Picture: {args.out}", sep="\n")
