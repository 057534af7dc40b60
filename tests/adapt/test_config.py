import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from scda.adapt.config import OPTIONS, RENAMED, TrainConfig
from scda.adapt.config_file import resolve
from scda.adapt.presets import PRESETS
from scda.models.errors import UsageError


def toml(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, "utf-8")
    return path


def test_option_goes_before_file_before_preset_before_default(tmp_path: Path) -> None:
    file = toml(tmp_path, 'preset = "paper"\niterations = 7\nlr = 0.01\n')
    config = resolve({"lr": 0.1}, file)
    assert config.lr == 0.1  # option
    assert config.rounds == 7  # file; the preset says 400
    assert config.adversary == "matrix"  # preset
    assert config.momentum == 0.9  # default


def test_an_option_may_choose_another_preset_than_the_file(tmp_path: Path) -> None:
    config = resolve({"preset": "robust"}, toml(tmp_path, 'preset = "paper"'))
    assert config == TrainConfig()


def test_an_option_of_none_was_not_given(tmp_path: Path) -> None:
    file = toml(tmp_path, "k_max = 9")
    assert resolve({"k_max": None, "neighbours": None}, file).k_max == 9


def test_an_option_may_be_zero_or_false() -> None:
    config = resolve({"rounds": 0, "neighbours": False, "preset": "paper"})
    assert (config.rounds, config.neighbours) == (0, False)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_still_works(old: str, new: str, tmp_path: Path) -> None:
    value, other = (1, 2) if new == "rounds" else (0.5, 0.25)
    fields: dict[str, Any] = {new: value}
    expected = TrainConfig(**fields)
    assert resolve({old: value}) == expected
    assert resolve({}, toml(tmp_path, f"{old} = {value}")) == expected
    assert getattr(resolve({new: value}, toml(tmp_path, f"{old} = {other}")), new) == value
    with pytest.raises(UsageError, match=f"{old} is the old name of {new}; expected one of them"):
        resolve({old: value, new: value})


def test_robust_is_the_default() -> None:
    assert resolve({}) == TrainConfig() == resolve({"preset": "robust"})


def test_paper_follows_the_text() -> None:
    config = resolve({"preset": "paper"})
    assert (config.batch_size, config.lr, config.momentum, config.weight_decay) == (
        32,
        1e-3,
        0.9,
        5e-4,
    )
    assert (config.adversary, config.temperature, config.confusion_rows) == ("matrix", 1, "all")
    assert (config.implicit_share, config.cluster_space) == ("half", "features")
    assert (config.rounds, config.pretrain_steps, config.round_steps) == (400, 1000, 0)
    assert (config.k_max, config.assignment, config.sampling) == (40, "separate", "shuffled")
    assert (config.head_widths, config.batchnorm, config.novel) == (
        (1024, 512, 256),
        "target",
        "yes",
    )
    assert config.restarts >= 3
    assert (config.k_method, config.propagation_alpha, config.unknown_logit_bias) == (
        "scda",
        0,
        0,
    )  # no such thing


@pytest.mark.parametrize(
    ("num_known", "batch_size", "steps"), [(10, 32, 200), (25, 32, 500), (20, 50, 256)]
)
def test_pretraining_shows_every_known_class_640_times(
    num_known: int, batch_size: int, steps: int
) -> None:
    config = TrainConfig(batch_size=batch_size)
    assert config.pretrain_length(num_known) == steps
    assert steps == math.ceil(640 * num_known / batch_size)


@pytest.mark.parametrize("num_known", [2, 5])
def test_pretraining_of_few_classes_is_no_shorter_than_200_steps(num_known: int) -> None:
    assert TrainConfig().pretrain_length(num_known) == 200


@pytest.mark.parametrize(
    ("fields", "classes", "steps"),
    [
        ({}, 5, 150),
        ({}, 40, 480),
        ({"round_steps": 7}, 40, 7),
        ({"round_length": "target"}, 40, 31),
        ({"round_steps": 7, "round_length": "target"}, 40, 7),
    ],
)
def test_a_round_grows_with_the_classes_or_is_one_pass(
    fields: dict[str, Any], classes: int, steps: int
) -> None:
    assert TrainConfig(**fields).steps_of_round(1000, classes) == steps


def test_inputs_are_whitened_where_the_backbone_is_frozen() -> None:
    assert TrainConfig().whitens
    assert not TrainConfig(finetune="last").whitens
    assert not resolve({"preset": "paper"}).whitens


def test_several_backbones_cannot_learn() -> None:
    assert resolve({"preset": "accurate"}).backbone == "lite0+lite2"
    with pytest.raises(UsageError, match=r"finetune is 'last' and backbone is 'lite0\+lite2'; exp"):
        resolve({"preset": "accurate", "finetune": "last"})


def test_a_given_number_of_pretraining_steps_is_kept() -> None:
    assert TrainConfig(pretrain_steps=7).pretrain_length(10) == 7
    assert resolve({"preset": "paper"}).pretrain_length(10) == 1000


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_resolved_and_names_itself(name: str) -> None:
    assert resolve({"preset": name}).preset == name


def test_every_type_may_stand_in_a_file(tmp_path: Path) -> None:
    file = toml(
        tmp_path, 'head_widths = [8, 4]\ntemperature = 2\nneighbours = false\nweights = "жар.pt"'
    )
    config = resolve({}, file)
    assert config.head_widths == (8, 4)
    assert (config.temperature, config.neighbours, config.weights) == (2, False, "жар.pt")


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().lr = 1.0  # type: ignore[misc]  # it is frozen


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.choices])
def test_another_choice_is_refused_with_the_allowed_ones(name: str) -> None:
    *others, last = OPTIONS[name].choices
    message = f"{name} is 'other'; expected {', '.join(others)} or {last}"
    with pytest.raises(UsageError, match=message):
        resolve({name: "other"})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 1}, "batch_size is 1; expected at least 2"),
        ({"k_max": 0}, "k_max is 0; expected at least 1"),
        ({"restarts": 0}, "restarts is 0; expected at least 1"),
        ({"pretrain_steps": -1}, "pretrain_steps is -1; expected at least 0"),
        ({"rounds": -1}, "rounds is -1; expected at least 0"),
        ({"k": -1}, "k is -1; expected at least 0"),
        ({"pca": -1}, "pca is -1; expected at least 0"),
        ({"round_steps": -1}, "round_steps is -1; expected at least 0"),
        ({"image_size": -1}, "image_size is -1; expected at least 0"),
        ({"workers": -1}, "workers is -1; expected at least 0"),
        ({"seed": -1}, "seed is -1; expected at least 0 and at most 2147483647"),
        ({"seed": 2**31}, "seed is 2147483648; expected at least 0 and at most 2147483647"),
        ({"lr": 0.0}, "lr is 0.0; expected more than 0 and less than 1"),
        ({"lr": 1.0}, "lr is 1.0; expected more than 0 and less than 1"),
        ({"lr": math.nan}, "lr is nan; expected a finite number"),
        ({"momentum": 1.0}, "momentum is 1.0; expected at least 0 and less than 1"),
        ({"momentum": -0.1}, "momentum is -0.1; expected at least 0 and less than 1"),
        ({"weight_decay": math.nan}, "weight_decay is nan; expected a finite number"),
        (
            {"propagation_alpha": 1.0},
            "propagation_alpha is 1.0; expected at least 0 and less than 1",
        ),
        (
            {"propagation_alpha": -0.1},
            "propagation_alpha is -0.1; expected at least 0 and less than 1",
        ),
        ({"propagation_alpha": math.nan}, "propagation_alpha is nan; expected a finite number"),
        ({"unknown_logit_bias": math.nan}, "unknown_logit_bias is nan; expected a finite number"),
        ({"unknown_logit_bias": math.inf}, "unknown_logit_bias is inf; expected a finite number"),
        ({"unknown_logit_bias": -1e300}, r"is -1e\+300; expected at least -100 and at most 100"),
        ({"temperature": 0.0}, "temperature is 0.0; expected more than 0"),
        ({"temperature": math.nan}, "temperature is nan; expected a finite number"),
        ({"temperature": math.inf}, "temperature is inf; expected a finite number"),
        ({"head_widths": ()}, r"head_widths is \[\]; expected at least one number"),
        ({"head_widths": (8, 0)}, r"head_widths is \[8, 0\]; expected at least 1"),
        ({"k": 5, "novel": "no"}, "k is 5 and novel is 'no'; expected one of them"),
        ({"finetune": "first"}, "finetune is 'first'; expected none, last or all"),
        ({"precision": "fp8"}, "precision is 'fp8'; expected fp32, bf16 or fp16"),
        (
            {"backbone_lr_scale": 0.0},
            r"backbone_lr_scale is 0\.0; expected more than 0 and at most 1",
        ),
        ({"backbone_lr_scale": math.nan}, "backbone_lr_scale is nan; expected a finite number"),
        ({"clip_grad": -1.0}, r"clip_grad is -1\.0; expected at least 0"),
        ({"clip_grad": math.nan}, "clip_grad is nan; expected a finite number"),
        ({"k": "5"}, "k is '5'; expected a whole number"),
        ({"clip_grad": math.inf}, "clip_grad is inf; expected a finite number"),
        ({"preset": "quick"}, "preset is 'quick'; expected robust, accurate, paper, office31"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        resolve(fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate = 0.1", "no option 'learning_rate'; expected adversary, after, assignment"),
        ('lr = "fast"', "lr is 'fast'; expected a number"),
        ("k_max = 2.5", "k_max is 2.5; expected a whole number"),
        ("k_max = true", "k_max is True; expected a whole number"),
        ("neighbours = 1", "neighbours is 1; expected true or false"),
        ("preset = 3", "preset is 3; expected text"),
        ("head_widths = 8", "head_widths is 8; expected a list of whole numbers"),
        ('head_widths = ["8"]', r"head_widths is \['8'\]; expected a list of whole numbers"),
        ("[train]\nlr = 0.1", "no option 'train'"),
        ("lr = = 1\n\n", "cannot read the config: Invalid value"),
        ("momentum = nan", "momentum is nan; expected a finite number"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        resolve({}, toml(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.toml: cannot read the config"):
        resolve({}, tmp_path / "gone.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"binary\.toml: cannot read the config"):
        resolve({}, tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("name", "batch_size", "rounds", "k_max"),
    [("office31", 32, 400, 40), ("office-home", 32, 400, 120), ("domainnet", 64, 40, 650)],
)
def test_a_benchmarks_preset_is_its_column_of_the_hyper_parameters(
    name: str, batch_size: int, rounds: int, k_max: int
) -> None:
    config, paper = resolve({"preset": name}), resolve({"preset": "paper"})
    assert (config.batch_size, config.rounds, config.k_max) == (batch_size, rounds, k_max)
    assert (config.backbone, config.finetune, config.image_size) == ("resnet50", "all", 227)
    assert (config.lr, config.momentum, config.weight_decay) == (1e-3, 0.9, 5e-4)
    assert config.backbone_lr_scale == 1.0  # the paper has one learning rate
    for field in ("adversary", "head_widths", "batchnorm", "pretrain_steps", "round_steps"):
        assert getattr(config, field) == getattr(paper, field)


def test_from_preset_takes_the_values_of_the_preset_and_those_given() -> None:
    config = TrainConfig.from_preset("paper", seed=3)
    assert config == resolve({"preset": "paper", "seed": 3})
    assert config.adversary != TrainConfig().adversary
    with pytest.raises(UsageError, match="preset"):
        TrainConfig.from_preset("nothing")
