"""What each measure of a picture says, in a sentence, for the report and for the page."""

PSNR = "How close the pixels are to dense. Above some 40 dB differences are hard to see."
SSIM = "How alike structures are; 1 is the same."
MS_SSIM = "SSIM at several scales; 1 is the same."
LPIPS = "How different the pictures look to a network that was trained on people's judgement; 0 is the same."
DETAIL = "Fine detail as a share of the dense picture's: less than 1 is softer, more is grainier."
FID = "How far the pictures are, as a set, from the dense ones, or from the real ones that the settings name."
