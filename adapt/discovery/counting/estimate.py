"""What an estimator of k returns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Curve:
    """The result of a sweep over k; k counts all clusters, known ones included."""

    k: list[int]  # values tried, rising: all of a short range, see sweep_search
    sse: list[float]  # of T_kn and T_im, best restart, in squared feature units
    accuracy: list[float]  # clustering accuracy of T_kn, best restart, 0 to 1
    k_accuracy: int
    k_accuracy_spread: list[int]  # the same for each restart alone, among the k tried
    k_elbow: int


@dataclass(frozen=True)
class KEstimate:
    """One estimate of k*, the number of new classes."""

    k: int  # 1 or more
    at_bound: bool = False  # whether a larger k_max might give a larger k
    curve: Curve | None = None  # what a sweep over k measured
