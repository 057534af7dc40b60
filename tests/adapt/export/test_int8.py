import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from scda.adapt.export import int8
from scda.adapt.export.agreement import check_agreement
from scda.adapt.export.quantise import quantise, reshape_pooled, set_temperatures
from scda.models.bundle import Manifest, read_manifest
from scda.models.errors import GateError, UsageError
from scda.models.images import read_file
from scda.models.index import normalised, read_index
from scda.models.names import read_names
from scda.models.naming import Edit, change_names
from scda.models.onnx_runtime import ort
from scda.models.predictor import Outputs, Predictor, load_predictor
from scda.models.quantisation import Quantisation
from tests.conftest import Scda, TinyData


@pytest.fixture(scope="module")
def exported(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The int8 version of the tiny run, beside a copy of it; read it, do not change it."""
    from scda.adapt.pipeline.export import Export, export
    from scda.adapt.runtime.progress import Reporter

    folder = tmp_path_factory.mktemp("int8")
    run = folder / "run"
    shutil.copytree(tiny_run, run)
    edit = Edit("name", ("known-000",), "blue")
    change_names(run / "bundle", lambda naming, names: naming.apply(names, edit))
    with Reporter(quiet=True) as reporter:
        export(Export(run=run, out=folder / "bundle"), reporter)
    return folder / "bundle"


@pytest.fixture(scope="module")
def predictor(exported: Path) -> Predictor:
    return load_predictor(exported, provider="cpu", threads=1)


@pytest.fixture(scope="module")
def outputs(tiny: TinyData, predictor: Predictor) -> Outputs:
    paths = sorted(tiny.target.iterdir())
    return predictor.run([predictor.prepare(read_file(path)) for path in paths])


def test_the_convolutions_are_int8_and_the_head_is_not(exported: Path) -> None:
    model = onnx.load(exported / "model.onnx")
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    made_from = {value: node.input[0] for node in model.graph.node for value in node.output}
    weights = {
        node.name: made_from.get(node.input[1], node.input[1])
        for node in model.graph.node
        if node.op_type in ("Conv", "Gemm")
    }
    of_type = [types[name] for name in weights.values()]
    assert of_type[:4] == [onnx.TensorProto.INT8] * 4
    assert set(of_type[4:]) == {onnx.TensorProto.FLOAT}


def test_the_gate_is_in_the_manifest(tiny_run: Path, exported: Path) -> None:
    before, after = read_manifest(tiny_run / "bundle"), read_manifest(exported)
    assert (before.precision, after.precision) == ("fp32", "int8")
    assert "quantisation" not in json.loads((tiny_run / "bundle/bundle.json").read_text())
    found = after.quantisation
    assert found
    assert (found.model_id, found.images, found.min_agreement) == (before.id, 100, 0.99)
    assert found.equal_labels >= 0.99
    assert found.largest_loss == pytest.approx(1 - min(found.agreement.values()))
    assert found.agreement[found.largest_loss_in] == min(found.agreement.values())
    assert set(found.agreement) == {info.class_id for info in before.classes if info.size}


def test_both_models_answer_alike(tiny: TinyData, tiny_run: Path, outputs: Outputs) -> None:
    exact = load_predictor(tiny_run / "bundle", provider="cpu", threads=1)
    paths = sorted(tiny.target.iterdir())
    before = exact.run([exact.prepare(read_file(path)) for path in paths])
    labels = (before.probabilities.argmax(axis=1), outputs.probabilities.argmax(axis=1))
    assert np.mean(labels[0] == labels[1]) >= 0.99
    assert np.abs(before.probabilities - outputs.probabilities).max() > 0  # not the same file


def stored_vectors(path: Path) -> NDArray[np.float32]:
    index = read_index(path)
    return np.stack([index.reconstruct(row) for row in range(index.ntotal)])


def test_centroids_radii_and_neighbours_are_of_the_new_model(
    tiny: TinyData, exported: Path, predictor: Predictor, outputs: Outputs
) -> None:
    stored = pq.read_table(exported / "neighbours.parquet").to_pydict()
    row_of = {name: row for row, name in enumerate(stored["path"])}
    order = [row_of[path.name] for path in sorted(tiny.target.iterdir())]
    vectors = stored_vectors(exported / "neighbours.faiss")[order]
    directions = normalised(outputs.features)
    np.testing.assert_allclose(vectors, directions, atol=1e-5)
    manifest = predictor.manifest
    predicted = outputs.probabilities.argmax(axis=1)
    ids = np.array(manifest.class_ids)[predicted]
    assert [stored["class_id"][row] for row in order] == ids.tolist()
    confidence = np.array(stored["confidence"])[order]
    np.testing.assert_allclose(confidence, outputs.probabilities.max(axis=1), atol=1e-4)
    centroids = stored_vectors(exported / "clusters.faiss")
    for label, info in enumerate(manifest.classes):
        own = directions[predicted == label]
        assert info.size == len(own)
        if len(own):
            centroid = normalised(own.mean(axis=0)[None])[0]
            np.testing.assert_allclose(centroids[label], centroid, atol=1e-5)
            radius = float(np.quantile(1 - own @ centroid, 0.99))
            assert info.radius["q99"] == pytest.approx(radius, abs=1e-5)
        assert info.exemplars
    assert manifest.on_target
    assert manifest.on_target.mean_confidence == pytest.approx(confidence.mean(), abs=1e-4)


def test_the_confidence_is_calibrated_anew(predictor: Predictor, outputs: Outputs) -> None:
    calibration, predicted = predictor.manifest.calibration, outputs.probabilities.argmax(axis=1)
    assert calibration
    for class_id, expected in calibration.expected.items():
        own = predicted == predictor.manifest.class_ids.index(class_id)
        mean = outputs.probabilities[own].max(axis=1).mean()
        if calibration.temperature[class_id] > 1:
            assert mean == pytest.approx(expected, abs=0.05)


def test_names_are_kept(exported: Path, predictor: Predictor) -> None:
    names = read_names(exported, predictor.manifest)
    assert names.labels == {"known-000": "blue"}


def changed(model: onnx.ModelProto, out: Path, batches: Iterable[Any]) -> None:
    """Write a model that answers the first class for every image."""
    bias = next(one for one in model.graph.initializer if one.name.endswith("classifier.0.bias"))
    values = onnx.numpy_helper.to_array(bias).copy()
    values[0] += 1000
    bias.CopyFrom(onnx.numpy_helper.from_array(values, bias.name))
    onnx.save_model(model, str(out))


def test_a_model_that_answers_otherwise_is_refused(
    scda: Scda, tiny: TinyData, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "quantise", changed)
    done = scda("export", tiny_run, "--precision", "int8", "--out", tmp_path / "b2", "--quiet")
    assert done.returncode == 5
    assert "of 100 target images keep their class" in done.stderr
    assert "--min-agreement" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    out = tmp_path / "allowed"
    words = ("--target", tiny.target, "--min-agreement", "0", "--json", "--quiet")
    least = scda("export", tiny_run, "--out", out, *words)
    assert least.returncode == 0
    told = json.loads(least.stdout)
    assert told["id"] == read_manifest(out).id
    assert told["equal_labels"] < 0.99
    assert told["largest_loss"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--precision", "int4"], "precision is 'int4'; expected int8"),
        (["--target", "nowhere"], "nowhere: no such folder on this machine; pass --target DIR"),
        (["--out", "."], "exists; expected the name of a new folder for --out"),
    ],
)
def test_wrong_options_are_told(
    scda: Scda, tiny_run: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    done = scda("export", tiny_run, "--out", tmp_path / "b2", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_an_int8_bundle_is_not_exported_again(scda: Scda, exported: Path, tmp_path: Path) -> None:
    done = scda("export", exported, "--out", tmp_path / "b3")
    assert done.returncode == 2
    assert "its model is int8 already" in done.stderr


def agreement(exact: list[int], other: list[int], manifest: Manifest, least: float) -> Quantisation:
    one_hot = np.eye(len(manifest.classes), dtype=np.float32)
    return check_agreement(
        one_hot[exact], one_hot[other], manifest, calibration_images=2, least=least
    )


def test_the_agreement_is_told_by_class(tiny_run: Path) -> None:
    manifest = read_manifest(tiny_run / "bundle", checked=False)
    found = agreement([0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0], manifest, 0.5)
    assert found.equal_labels == pytest.approx(4 / 6, abs=1e-6)
    assert found.agreement == {"known-000": 0.5, "known-001": 0.75}
    assert (found.largest_loss, found.largest_loss_in) == (0.5, "known-000")
    with pytest.raises(GateError, match=r"66.67% of 6 .* 50.0% in known-000; expected 67.00%"):
        agreement([0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0], manifest, 0.67)


@pytest.mark.parametrize(
    "changes", [{"precision": "int4"}, {"equal_labels": 1.1}, {"agreement": {"a": -1}}, {"x": 1}]
)
def test_a_strange_gate_is_refused(exported: Path, changes: dict[str, Any]) -> None:
    found = read_manifest(exported, checked=False).quantisation
    assert found
    assert Quantisation.from_json(asdict(found)) == found
    with pytest.raises((TypeError, ValueError)):
        Quantisation.from_json({**asdict(found), **changes})


def test_a_model_without_convolutions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no convolutions to write in int8"):
        quantise(onnx.ModelProto(), tmp_path / "model.onnx", [])
    assert not set_temperatures(onnx.ModelProto(), [1.0])


def test_pooled_activations_are_reshaped_without_a_copy() -> None:
    helper, types = onnx.helper, onnx.TensorProto
    arrays = {
        "sides": np.array([2, 3]),
        "flat": np.array([-1]),
        "columns": np.arange(5).reshape(1, 5, 1, 1),
        "five": np.array(5),
        "last": np.array([1, 2, 3]),
        "zero": np.array(0),
        "one": np.array(1),
        "none": np.array([0]),
        "shape": np.array([-1, 5]),
        "unused": np.array([1]),
    }
    nodes = [
        helper.make_node("ReduceMean", ["planes", "sides"], ["mean"], keepdims=1),
        helper.make_node("Reshape", ["mean", "flat"], ["row"]),
        helper.make_node("Shape", ["planes"], ["n"], start=0, end=1),
        helper.make_node("Squeeze", ["n", "none"], ["count"]),
        helper.make_node("Range", ["zero", "count", "one"], ["rows"]),
        helper.make_node("Unsqueeze", ["rows", "last"], ["upright"]),
        helper.make_node("Mul", ["upright", "five"], ["begins"]),
        helper.make_node("Add", ["begins", "columns"], ["positions"]),
        helper.make_node("Gather", ["row", "positions"], ["as_strided"]),
        helper.make_node("Reshape", ["as_strided", "shape"], ["out"]),
    ]
    planes = helper.make_tensor_value_info("planes", types.FLOAT, ["n", 5, 4, 4])
    out = helper.make_tensor_value_info("out", types.FLOAT, ["n", 5])
    constants = [
        onnx.numpy_helper.from_array(value.astype(np.int64), name) for name, value in arrays.items()
    ]
    graph = helper.make_graph(nodes, "pooling", [planes], [out], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    given = np.random.default_rng(0).random((3, 5, 4, 4), np.float32)

    def answer() -> Any:
        content = model.SerializeToString()
        session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
        return session.run(None, {"planes": given})[0]

    before = answer()
    reshape_pooled(model.graph)
    assert [node.op_type for node in model.graph.node] == ["ReduceMean", "Reshape"]
    assert {tensor.name for tensor in model.graph.initializer} == {"sides", "shape"}
    np.testing.assert_array_equal(answer(), before)


def test_the_ranges_are_measured_in_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper, types = onnx.helper, onnx.TensorProto
    weights = onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "weights")
    nodes = [
        helper.make_node("Cast", ["pixels"], ["floats"], to=types.FLOAT),
        helper.make_node("Transpose", ["floats"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["planes", "weights"], ["sums"], name="first"),
        helper.make_node("Relu", ["sums"], ["out"]),
    ]
    pixels = helper.make_tensor_value_info("pixels", types.UINT8, ["n", 8, 8, 3])
    out = helper.make_tensor_value_info("out", types.FLOAT, ["n", 4, 6, 6])
    graph = helper.make_graph(nodes, "small", [pixels], [out], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    threads: list[int] = []

    real = ort.InferenceSession

    def seen(model: Any, sess_options: Any, **rest: Any) -> Any:
        threads.append(sess_options.intra_op_num_threads)
        return real(model, sess_options, **rest)

    monkeypatch.setattr(ort, "InferenceSession", seen)
    quantise(model, tmp_path / "model.onnx", [np.zeros((2, 8, 8, 3), np.uint8)])
    assert threads
    assert set(threads) == {1}


def test_a_class_without_target_images_is_that_of_its_source(
    tiny: TinyData, exported: Path, predictor: Predictor, outputs: Outputs
) -> None:
    from scda.adapt.data.image_files import Images

    paths = sorted(tiny.source.rglob("*.png"))
    source = Images(tiny.source, paths)
    probabilities = outputs.probabilities.copy()
    probabilities[:, [1, -1]] = 0
    manifest = replace(predictor.manifest)
    used, members = int8._members(predictor.session, manifest, probabilities, source)
    domain, rows, features = members[1]
    assert (domain, len(rows), len(used.paths)) == ("source", 20, 20)
    assert {path.parent.name for path in used.paths} == {manifest.classes[1].label}
    assert features is not None
    assert features.shape == (20, predictor.session.width)
    domain, rows, features = members[-1]
    assert (domain, len(rows), features) == ("target", 12, None)
