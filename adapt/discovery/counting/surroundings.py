"""How many new classes: as `accuracy`, but among all images of the target."""

from scda.adapt.discovery.counting.accuracy import matching_communities
from scda.adapt.discovery.counting.estimate import KEstimate
from scda.adapt.discovery.space import Space


def estimate_by_surroundings(space: Space) -> KEstimate:
    """Return k* as the number of communities of the whole target that are mostly of T_im.

    The resolution is that at which the communities match the classes of T_kn best. Uncertain known
    images take part, so that a few images of T_im among many of them are no class.
    """
    implicit = len(space.implicit)
    return KEstimate(
        matching_communities(space.surroundings, space.known_labels, implicit, space.grain)
    )
