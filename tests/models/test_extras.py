import pytest

from scda.models.errors import UsageError
from scda.models.extras import needs_extra


def test_a_missing_library_names_the_extra_to_install() -> None:
    with pytest.raises(UsageError) as raised, needs_extra("train"):
        raise ModuleNotFoundError(name="torch")
    assert str(raised.value) == "torch is missing; pip install 'scda[train]'"


def test_a_missing_module_of_our_own_is_no_missing_library() -> None:
    with pytest.raises(ModuleNotFoundError), needs_extra("train"):
        raise ModuleNotFoundError(name="scda.nothing")
