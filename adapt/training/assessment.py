"""The end of a run: how accurate it is expected to be, and what its user should know of it."""

from scda.adapt.data.dataset import Labelled
from scda.adapt.discovery import diagnostics
from scda.adapt.discovery.findings import Finding, consistent
from scda.adapt.discovery.novelty.comparison import Comparison
from scda.adapt.discovery.novelty.whitening import fit_whitening
from scda.adapt.discovery.trust.estimate import estimate
from scda.adapt.discovery.trust.measures import measure
from scda.adapt.discovery.trust.outcome import Outcome
from scda.adapt.training.domains import Domains
from scda.adapt.training.networks import infer
from scda.adapt.training.state import RunState
from scda.models.trust import Trust


def outcome_of(state: RunState, source: Labelled, domains: Domains) -> Outcome:
    """Return the outcome of a run.

    Args:
        state: State after the last stage.
        source: The source as the final backbone sees it.
        domains: Both domains, the target as the final backbone sees it.
    """
    features, labels = source.features.numpy(), source.labels.numpy()
    target = domains.backbone_target.numpy()
    if domains.is_frozen:
        compared = domains.compared
        if domains.shared:
            points = domains.with_shared(compared.source, compared.target)
            compared = compared.with_source(points, labels)
    else:
        whitening = fit_whitening(features, labels, target)
        points, others = whitening.source(features), whitening.target(target)
        compared = Comparison(points, labels, others)
    logits, _ = infer(state.networks, domains.target)
    return Outcome(compared, logits.softmax(dim=1).numpy())


def run_findings(state: RunState, outcome: Outcome, trust: Trust) -> list[Finding]:
    """Return what the user should know at the end of a run.

    Args:
        state: State after the last stage.
        outcome: Its outcome.
        trust: What the outcome tells about the accuracy.
    """
    discovery = state.discovery
    at_the_end = diagnostics.diagnose(outcome.predicted, outcome.num_known, trust, discovery)
    verdict = [discovery.verdict] if discovery and discovery.verdict else []
    of_discovery = discovery.findings if discovery else ()
    return consistent([*verdict, *of_discovery, *at_the_end, *state.findings])


def run_trust(outcome: Outcome) -> Trust:
    """Return how accurate a run with this outcome is expected to be."""
    return estimate(measure(outcome))
