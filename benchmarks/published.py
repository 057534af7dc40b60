"""Published figures for open-set Office-31, means over the six tasks, in percent.

Each row names its backbone and its split, since no two of these papers measure the same thing.
UNK and HOS of the rows from SCDA's table are not printed there: UNK = 11·OS - 10·OS*, good to a
point of rounding. HOS is the mean of the tasks' HOS.
"""

from dataclasses import dataclass

_TUNED = "ResNet-50, fine-tuned"
_OF_TABLE = "10/11, SCDA's table; classes not listed"
_OF_GLC = "10/11, GLC's table"
_ALPHABET = "10/11 by alphabet (P2)"


@dataclass(frozen=True)
class Published:
    """One row; None where the source gives nothing that can be read."""

    method: str
    backbone: str
    split: str
    os: float | None = None
    os_star: float | None = None
    unk_pooled: float | None = None
    hos: float | None = None
    k_star: float | None = None


PUBLISHED = [
    Published("SCDA (the paper)", _TUNED, _OF_TABLE, 95.8, 96.8, 85.8, 90.8, 10.1),
    Published("OSBP", _TUNED, _OF_TABLE, 90.8, 91.3, 85.8, 88.3),
    Published("STA", _TUNED, _OF_TABLE, 92.9, 94.1, 80.9, 84.6),
    Published("TIM", _TUNED, _OF_TABLE, 93.4, 94.5, 82.4, 87.7),
    # UNK and HOS are what OS and OS* imply, task by task; rounding takes OSBP, STA and TIM above
    # 100 on one task each. JPOT's implied UNK is above 100 on two, so neither is given.
    Published("JPOT", _TUNED, _OF_TABLE, 94.6, 94.3),
    Published("SHOT", _TUNED, _OF_TABLE, 92.6, 94.3, 75.6, 83.5),
    Published("PGL", _TUNED, _OF_TABLE, 85.8, 87.4, 69.8, 76.4),
    Published("OVANet", _TUNED, _OF_GLC, hos=91.7),
    Published("UMAD", _TUNED, _OF_GLC, hos=89.8),
    Published("GATE", _TUNED, _OF_GLC, hos=89.5),
    Published("GLC", _TUNED, _OF_GLC, hos=89.0),
    Published("DANCE", _TUNED, _OF_GLC, hos=79.8),
    Published("ROS (quoted from memory)", _TUNED, _ALPHABET, hos=85.9),
    Published("OSBP (tllib; epoch chosen on the test set)", _TUNED, "20/11", hos=87.8),
]

# SCDA's table of k on Office-31: mean k* of 11 implicit classes over the six tasks.
PUBLISHED_K = {"silhouette": 17.8, "dtc": 6.8, "scda": 10.1}

# SCDA's supplement: implicit classes of 11 among the 1, 3 and 5 surest images of each discovered
# class, means over the six tasks of Office-31.
PUBLISHED_CORRESPONDENCE = (8.8, 9.3, 10.0)
