"""The losses of SCDA as functions of tensors (Eq. 1, 2, 4, 7, 9).

C counts all outputs, K the known ones; in pre-training C = K + 1 and the last output is `unknown`.
"""

import math
from typing import Any

import torch
from torch import Tensor


def class_correlation(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return the correlation of the classes in a batch: how they share probability.

    A confident image has a larger weight, 1 + exp(-entropy in nats). Dividing by the mean weight
    would cancel in the row normalisation, so it is left out.

    Args:
        logits: Logits of a batch, (N, C).
        temperature: Temperature of the softmax; above 1 softens the probabilities.

    Returns:
        (C, C); entry (j, k) is the share of its probability that class j gives to class k. Rows
        sum to 1; a class without any probability has a row of zeros.

    Raises:
        ValueError: If `logits` is not (N, C) or N is 0.

    Source: SCDA (Zhuang et al. 2022), Eq. 1 and the row normalisation after it;
    Jin et al. 2020, https://arxiv.org/abs/1912.03699
    """
    log_probs = _log_softmax(logits, temperature)
    probs = log_probs.exp()
    shared = (probs * _certainty(log_probs)[:, None]).T @ probs  # (C, C)
    # Rows, not columns: without keepdim the same line would normalise the transpose (choice 4).
    return shared / shared.sum(dim=1, keepdim=True).clamp_min(torch.finfo(shared.dtype).tiny)


def class_confusion(correlation: Tensor, *, num_classes: int, rows: str = "all") -> Tensor:
    """Return the mean share that a class gives to others among the first `num_classes`, 0 to 1.

    With the K known classes this is L_kcc (Eq. 4), with all K + k* it is L_tcc (Eq. 9).

    Args:
        correlation: Result of `class_correlation`, (C, C).
        num_classes: Number of leading rows and columns to use; at most C.
        rows: `all` takes the mean over all rows, `present` over those with any probability: with
            more classes than images in a batch, empty rows would dilute the mean (choice 6).

    Raises:
        ValueError: If `rows` is neither.

    Source: SCDA, Eq. 4 and 9.
    """
    part = correlation[:num_classes, :num_classes]
    shared = part.sum() - part.trace()
    if rows == "all":
        return shared / num_classes
    if rows != "present":
        raise ValueError(f"rows is {rows!r}; expected all or present")
    present = (correlation[:num_classes].detach().sum(dim=1) > 0.5).sum()  # a row sums to 1 or 0
    return shared / present.clamp_min(1)


def adversarial(logits: Tensor, *, form: str, temperature: float = 1.0) -> Tensor:
    """Return L_adv, the cross-entropy of `unknown` against one half, in nats; its minimum is log 2.

    Args:
        logits: Logits of target images, (N, K + 1), of features behind `reverse_gradient`.
        form: What is compared with one half. `matrix`: the mean share that known classes give to
            `unknown` (Eq. 2); `class`: the share of each known class, as the sentence before Eq. 2
            reads; `sample`: each image's probability of `unknown` (OSBP, Saito et al. 2018).
        temperature: Temperature of the class correlation.

    Raises:
        ValueError: If `form` is none of these, or `logits` is not (N, C) with N > 0.

    Source: SCDA, Eq. 2 (choice 1).
    """
    if form == "sample":
        log_probs = _log_softmax(logits, 1)
        return _from_a_half(log_probs[:, -1], log_probs[:, :-1].logsumexp(dim=1)).mean()
    given, kept = _given_to_unknown(_log_softmax(logits, temperature))
    if form == "class":
        return _from_a_half(given, kept).mean()
    if form == "matrix":
        return _from_a_half(given.logsumexp(dim=0), kept.logsumexp(dim=0)) + math.log(len(given))
    raise ValueError(f"form is {form!r}; expected matrix, class or sample")


def reverse_gradient(features: Tensor) -> Tensor:
    """Return the features unchanged; the backward pass negates their gradient.

    Between F and C, this makes F maximise what C minimises (Eq. 5 and 6).

    Source: Ganin and Lempitsky 2015, https://arxiv.org/abs/1409.7495
    """
    reversed_features: Tensor = _ReverseGradient.apply(features)
    return reversed_features


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    if logits.ndim != 2 or len(logits) == 0:
        raise ValueError(f"logits are {tuple(logits.shape)}; expected (N, C) with N > 0")
    return (logits / temperature).log_softmax(dim=1)


def _certainty(log_probs: Tensor) -> Tensor:
    """Return the weight of each image in Eq. 1, (N,), 1 to 2."""
    return 1 + (log_probs.exp() * log_probs).sum(dim=1).exp().detach()


def _given_to_unknown(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Return log R[j, unknown] and log(1 - R[j, unknown]) of the known classes, (K,) each.

    The values are those of `class_correlation`, computed as logarithms: a quotient of two tiny sums
    would have no finite gradient for a class without any probability.
    """
    known = log_probs[:, :-1]
    weights = (_certainty(log_probs).log()[:, None] + known).log_softmax(dim=0)  # (N, K)
    given = (weights + log_probs[:, -1:]).logsumexp(dim=0)
    kept = (weights + known.logsumexp(dim=1, keepdim=True)).logsumexp(dim=0)
    return given, kept


def _from_a_half(log_share: Tensor, log_rest: Tensor) -> Tensor:
    """Return the cross-entropy of a share against 1/2, from log(share) and log(1 - share)."""
    return -(log_share + log_rest) / 2


class _ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor) -> Tensor:
        return features.view_as(features)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return -gradients[0]
