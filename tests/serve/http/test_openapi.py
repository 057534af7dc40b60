"""What the OpenAPI document promises is what the application does."""

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from scda.models.predictor import Predictor
from scda.serve.http.application import create_app
from scda.serve.http.settings import Settings

# A document cannot say which bytes are an image, and whatever a form's field holds are bytes.
_NOT_FOR_IMAGES: list[Any] = [positive_data_acceptance, negative_data_rejection]
_FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_answer_is_one_that_the_document_promises(
    predictor: Predictor, bundle: Path, mode: GenerationMode
) -> None:
    """Requests that fit the document, and requests that do not."""
    app = create_app(predictor, Settings(bundle=bundle, allowed_hosts=("testserver",)))
    document = schemathesis.openapi.from_asgi("/docs.json", app)
    asked = set()
    for result in document.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if mode is GenerationMode.NEGATIVE and not operation.body:
            continue  # there is no way to ask it wrongly

        @_FEW
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: schemathesis.Case[Any]) -> None:
            asked.add(case.path)
            case.call_and_validate(excluded_checks=_NOT_FOR_IMAGES)

        check()
    assert {"/v1/predict", "/v1/predict_batch"} <= asked
