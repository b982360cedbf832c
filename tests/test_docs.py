"""What the documents show runs, and what they point to exists."""

import importlib
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from hpml.record.files import read_samples

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def gradients(params):
    return {"one": 0.1 * params["one"] + params["two"], "two": 0.1 * params["two"] - params["one"]}


def test_every_example_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    params = {"one": jnp.ones(2), "two": jnp.ones(2)}
    names = {
        "params": params,
        "grads": gradients(params),
        "gradients": gradients,
    }
    examples = blocks("README.md")
    assert len(examples) == 3
    for example in examples:
        exec(example, names)
    assert names["p"].nonpotentiality == pytest.approx(0.50, abs=0.005)
    assert np.abs(names["p"].direction + names["points"]).max() < 0.1
    assert np.isfinite(names["params"]["one"]).all()
    assert read_samples("run.safetensors").points.shape == (100 + 256, 4)


def test_the_plug_in_example_does_what_its_page_says(capsys):
    (example,) = blocks("docs/plugin.md")
    names: dict = {}
    exec(example, names)
    assert jnp.abs(names["params"]["one"]).max() < 1e-2
    assert float(capsys.readouterr().out) == pytest.approx(0.99, abs=0.005)

    params, state = {"one": jnp.ones(3), "two": jnp.ones(3)}, optax.sgd(0.3).init(None)
    for _ in range(100):
        updates, state = optax.sgd(0.3).update(names["gradients"](params), state)
        params = optax.apply_updates(params, updates)
    assert jnp.abs(params["one"]).max() > 5.0


def test_the_diagnose_page_records_probes_and_finds_the_rotation(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for example in blocks("docs/diagnose.md"):
        exec(example, names)
    found = names["found"]
    assert found.count == 400
    assert found.nonpotentiality.low > 0.5
    assert [block.name for block in found.blocks] == ["one", "two"]
    assert found.headline in capsys.readouterr().out


def test_the_mechanism_example_circles_raw_and_arrives_treated():
    (example,) = blocks("docs/mechanism.md")
    names: dict = {}
    exec(example, names)
    raw, treated = (names["exploitability"](names["game"], names[run].points[-1])[0] for run in ("raw", "treated"))
    assert raw > 0.5
    assert treated < 1e-3


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\(([^)#\s]+)\)", (ROOT / page).read_text()):
        assert target.startswith("https://") or (folder / target).exists(), target


def test_accuracy_pages_are_what_the_rows_say(monkeypatch):
    """Every figure of the accuracy page, and the README's excerpt, from the rows beside the benchmark."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    accuracy = importlib.import_module("accuracy")
    source = Path("benchmarks/results/accuracy.csv")
    rows = accuracy.load(ROOT / source)
    assert (ROOT / "docs/accuracy.md").read_text() == accuracy.markdown(rows, source)
    readme = (ROOT / "README.md").read_text()
    assert "\n".join(accuracy.excerpt(accuracy.Means(rows))) in readme
