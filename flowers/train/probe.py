"""A linear probe: logistic regression from Inception's features to the kind of flower."""

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from todome.tools.metrics import Inception

FOLDS = 5


@torch.no_grad()
def features_of(pictures: Tensor, network: Inception) -> Tensor:
    """What the FID network sees in pictures (N, 3, height, width) in bytes: (N, 2048)."""
    device = next(network.parameters()).device
    batches = tqdm(pictures.split(64), "features", mininterval=5)
    return torch.cat([network(batch.to(device) / 255).float().cpu() for batch in batches])


class Probe:
    """Five logits that are linear in the standardised features."""

    def __init__(self, features: Tensor, kinds: Tensor, decay: float = 3e-3, count: int = 0) -> None:
        self.mean, self.std = features.mean(0), features.std(0) + 1e-6
        x = (features - self.mean) / self.std
        self.weight = torch.zeros(x.shape[1], max(count, int(kinds.max()) + 1), device=x.device, requires_grad=True)
        optimiser = torch.optim.LBFGS([self.weight], max_iter=60, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            value = F.cross_entropy(x @ self.weight, kinds) + decay * self.weight.square().sum()
            value.backward()
            return value

        optimiser.step(loss)

    @torch.no_grad()
    def __call__(self, features: Tensor) -> Tensor:
        """The probability of each kind, (N, kinds)."""
        return (((features - self.mean) / self.std) @ self.weight).softmax(-1)


def cross_validated(features: Tensor, kinds: Tensor) -> Tensor:
    """The probability of each photo's own kind, told by a probe that has not seen the photo."""
    fold = torch.randperm(len(kinds), generator=torch.Generator().manual_seed(0)) % FOLDS
    own, count = torch.zeros(len(kinds)), int(kinds.max()) + 1  # a fold may leave out the only photo of a kind
    for i in range(FOLDS):
        seen, unseen = fold != i, fold == i
        probe = Probe(features[seen], kinds[seen], count=count)
        own[unseen] = probe(features[unseen]).gather(1, kinds[unseen, None])[:, 0]
    return own
