"""An original model of CompVis or Stability, with its own code and its own sampler.

Needs a checkpoint as .safetensors, the .yaml that belongs to it, and the package `ldm` of CompVis/stable-diffusion or
Stability-AI/stablediffusion. The sampler calls the UNet once at each step, which is all that dithering needs; for a
window, call `patch.at` as examples/custom_loop.py does.

python examples/ldm_original.py "a lighthouse" --model v1-5-pruned-emaonly.safetensors --config v1-inference.yaml
"""

from typing import Any

import torch
from arguments import parsed, parser_for
from ldm.models.diffusion.ddim import DDIMSampler
from ldm.util import instantiate_from_config
from omegaconf import OmegaConf
from PIL import Image
from safetensors.torch import load_file

import todome
from todome.tools.pictures import write_png


@torch.no_grad()
def main() -> None:
    defaults = {"prompt": "a lighthouse at dusk", "size": "1024x1024", "steps": 25, "factor": "auto"}
    parser = parser_for(__doc__, **defaults, model="v1-5-pruned-emaonly.safetensors", out="ldm.png")
    parser.add_argument("--config", default="v1-inference.yaml", help="the .yaml that belongs to the model")
    parser.add_argument("--guidance", type=float, default=7.5, help="how much the prompt counts")
    args = parsed(parser)
    model: Any = instantiate_from_config(OmegaConf.load(args.config).model)
    found = model.load_state_dict(load_file(args.model), strict=False)  # checkpoints also hold what training needs
    if found.missing_keys:
        parser.error(f"{args.model} lacks {len(found.missing_keys)} weights that {args.config} asks for")
    model.to(args.device).eval()

    patch = todome.apply(model, todome.Downsample(args.factor))
    torch.manual_seed(args.seed)
    width, height = (side // 8 for side in args.size)  # 8 pixels on a side of one latent
    with torch.autocast(args.device.type, args.dtype, enabled=args.dtype != torch.float32):
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
    write_png(picture, args.out, {"Title": args.prompt}, force=args.force)
    print(patch, f"Picture: {args.out}", sep="\n")


if __name__ == "__main__":
    main()
