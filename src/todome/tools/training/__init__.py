"""LoRA trainer whose attention sees fewer tokens: `todome train-lora`, or `todome.tools.training.lora.train`.

`recipe` (what is wanted) -> `dataset` (pictures and captions) -> `buckets` (their sizes and order) -> `latents`
(encoded once) -> `learning` (one step) -> `weights` and `metadata` (the file); `checkpoints` and `samples` on the way.
"""
