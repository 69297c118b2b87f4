"""A small double of stable-diffusion-webui 1.10: what an extension touches, behaving as the real one does."""
