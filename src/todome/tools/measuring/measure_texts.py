"""What each measure of a picture says, in a sentence, for the report."""

from .verdict import THRESHOLDS

PSNR = f"How close the pixels are to full attention. {THRESHOLDS}"
SSIM = "How alike structures are; 1 is the same."
MS_SSIM = "SSIM at several scales; 1 is the same."
LPIPS = "How different the pictures look to a network that was trained on people's judgement; 0 is the same."
DETAIL = "Fine detail as a share of that of the picture with full attention: less than 1 is softer, more is grainier."
FID = (
    "How far the pictures are, as a set, from those with full attention, or from the real ones that the settings name."
)
